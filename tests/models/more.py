"""Networks added to the comparison as one block, none of them measured before; sets.py divides them.
The same form as MODELS in zoo.py.
"""

import torch
import torch.nn.functional as F
import torchvision
import transformers
from torch import nn

from others import encoder, network, normalized, vision


def text(build, length=128, words=1000):
    """A transformers model's last hidden state for `length` tokens."""

    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = build()

        def forward(self, tokens):
            return self.inner(tokens).last_hidden_state

    return network(Hidden, (words, (1, length)))


def picture(build, size=224):
    """A transformers model's last hidden state for an image."""

    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = build()

        def forward(self, x):
            return self.inner(x).last_hidden_state

    return network(Hidden, (1, 3, size, size))


class ResidualUNet(nn.Module):
    """Noise prediction of a diffusion model: group normalisations, SiLU, attention at the bottom."""

    class Unit(nn.Module):
        def __init__(self, before, after):
            super().__init__()
            self.norms = nn.ModuleList([nn.GroupNorm(8, before), nn.GroupNorm(8, after)])
            self.first = nn.Conv2d(before, after, 3, padding=1)
            self.second = nn.Conv2d(after, after, 3, padding=1)
            self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

        def forward(self, x):
            y = self.first(F.silu(self.norms[0](x)))
            return self.second(F.silu(self.norms[1](y))) + self.skip(x)

    def __init__(self, width=64):
        super().__init__()
        self.first = nn.Conv2d(4, width, 3, padding=1)
        self.down = nn.ModuleList(
            nn.ModuleList([self.Unit(width * n, width * 2 * n), nn.Conv2d(width * 2 * n, width * 2 * n, 3, 2, 1)])
            for n in (1, 2)
        )
        self.middle = self.Unit(width * 4, width * 4)
        self.attention = nn.MultiheadAttention(width * 4, 8, batch_first=True)
        self.up = nn.ModuleList(self.Unit(width * 4 * n // 2, width * n) for n in (4, 2))
        self.last = nn.Conv2d(width * 2, 4, 3, padding=1)

    def forward(self, x):
        x = self.first(x)
        kept = []
        for unit, half in self.down:
            x = unit(x)
            kept.append(x)
            x = half(x)
        x = self.middle(x)
        flat = x.flatten(2).transpose(1, 2)
        x = x + self.attention(flat, flat, flat)[0].transpose(1, 2).reshape(x.shape)
        for unit in self.up:
            x = F.interpolate(x, scale_factor=2.0)
            skipped = kept.pop()
            x = unit(torch.cat([x[:, : unit.first.in_channels - skipped.shape[1]], skipped], 1))
        return self.last(x)


class Separator(nn.Module):
    """Separates sounds by masks over learned frames (as in Conv-TasNet)."""

    def __init__(self, width=128, blocks=8):
        super().__init__()
        self.encode = nn.Conv1d(1, 256, 16, 8)
        self.narrow = nn.Conv1d(256, width, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(width, 256, 1), nn.PReLU(), nn.GroupNorm(1, 256),
                nn.Conv1d(256, 256, 3, padding=2**n, dilation=2**n, groups=256),
                nn.PReLU(), nn.GroupNorm(1, 256), nn.Conv1d(256, width, 1),
            )
            for n in range(blocks)
        )
        self.masks = nn.Conv1d(width, 512, 1)
        self.decode = nn.ConvTranspose1d(256, 1, 16, 8)

    def forward(self, x):
        frames = F.relu(self.encode(x))
        y = self.narrow(frames)
        for block in self.blocks:
            y = y + block(y)
        masks = torch.sigmoid(self.masks(y)).chunk(2, 1)
        return torch.cat([self.decode(frames * mask) for mask in masks], 1)


class Tagger(nn.Module):
    """Convolutions over characters, a bidirectional LSTM over words (as in named-entity taggers)."""

    def __init__(self):
        super().__init__()
        self.characters = nn.Embedding(128, 32)
        self.convolution = nn.Conv1d(32, 64, 3, padding=1)
        self.layers = nn.LSTM(64, 128, 1, batch_first=True, bidirectional=True)
        self.last = nn.Linear(256, 20)

    def forward(self, x):
        words = self.characters(x).transpose(2, 3).flatten(0, 1)
        words = F.relu(self.convolution(words)).amax(2).unflatten(0, x.shape[:2])
        return self.last(self.layers(words)[0])


class MixtureOfExperts(nn.Module):
    """A dense mixture: every expert computes, the gate weighs them."""

    def __init__(self, width=256, experts=4):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 512), nn.GELU(), nn.Linear(512, width)) for _ in range(experts)
        )

    def forward(self, x):
        weights = F.softmax(self.gate(x), -1)
        results = torch.stack([expert(x) for expert in self.experts], -1)
        return (results * weights[..., None, :]).sum(-1)


class Graph(nn.Module):
    """Graph convolutions over a dense adjacency matrix."""

    def __init__(self, width=128):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, width), nn.Linear(width, width), nn.Linear(width, 16)])

    def forward(self, x, adjacency):
        adjacency = F.softmax(adjacency, -1)
        for layer in self.layers:
            x = F.elu(adjacency @ layer(x))
        return x


class Forecaster(nn.Module):
    """Patches of many series through a transformer (as in PatchTST)."""

    def __init__(self, width=128):
        super().__init__()
        self.first = nn.Linear(16, width)
        self.encoder = encoder(width, 8, 3)
        self.last = nn.Linear(width * 63, 96)

    def forward(self, x):
        patches = torch.stack([x[..., 8 * n : 8 * n + 16] for n in range(63)], -2).flatten(0, 1)
        return self.last(self.encoder(self.first(patches)).flatten(1))


class Stereo(nn.Module):
    """A cost volume of two images and three-dimensional convolutions over it."""

    def __init__(self, width=16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU(),
        )
        self.volume = nn.Sequential(
            nn.Conv3d(2 * width, width, 3, padding=1), nn.BatchNorm3d(width), nn.ReLU(),
            nn.Conv3d(width, 1, 3, padding=1),
        )

    def forward(self, left, right):
        left, right = self.features(left), self.features(right)
        costs = [torch.cat([left, F.pad(right, (n, 0))[..., : left.shape[-1]]], 1) for n in range(8)]
        return F.softmax(self.volume(torch.stack(costs, 2)).squeeze(1), 1)


class Keypoints(nn.Module):
    """Heat maps by transposed convolutions on a small backbone."""

    def __init__(self):
        super().__init__()
        backbone = torchvision.models.resnet18(weights=None)
        self.backbone = nn.Sequential(*list(backbone.children())[:-2])
        layers = []
        for before, after in [(512, 128), (128, 128), (128, 128)]:
            layers += [nn.ConvTranspose2d(before, after, 4, 2, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        self.up = nn.Sequential(*layers, nn.Conv2d(128, 17, 1))

    def forward(self, x):
        return self.up(self.backbone(x))


class Autoencoder(nn.Module):
    """Strided convolutions down, pixel shuffles up."""

    def __init__(self, width=32):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(3, width, 5, 2, 2), nn.LeakyReLU(0.2), nn.Conv2d(width, 2 * width, 5, 2, 2),
            nn.LeakyReLU(0.2), nn.Conv2d(2 * width, 4 * width, 5, 2, 2),
        )
        self.up = nn.Sequential(
            nn.Conv2d(4 * width, 8 * width, 3, padding=1), nn.PixelShuffle(2), nn.LeakyReLU(0.2),
            nn.Conv2d(2 * width, 4 * width, 3, padding=1), nn.PixelShuffle(2), nn.LeakyReLU(0.2),
            nn.Conv2d(width, 12, 3, padding=1), nn.PixelShuffle(2),
        )

    def forward(self, x):
        return torch.tanh(self.up(self.down(x)))


def small(configuration, **sizes):
    return configuration(
        vocab_size=1000, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, **sizes
    )


VISION = [
    "convnext_small", "densenet169", "efficientnet_b2", "mnasnet0_5", "regnet_x_800mf", "regnet_y_1_6gf",
    "resnet34", "resnext101_32x8d", "shufflenet_v2_x0_5", "squeezenet1_0", "swin_v2_t", "vgg11_bn", "vit_b_32",
]

MODELS = {
    **{name: vision(name) for name in VISION},
    "albert": text(lambda: transformers.AlbertModel(small(transformers.AlbertConfig, embedding_size=64))),
    "autoencoder": network(Autoencoder, (1, 3, 256, 256)),
    "beit": picture(lambda: transformers.BeitModel(transformers.BeitConfig(num_hidden_layers=4))),
    "convbert": text(lambda: transformers.ConvBertModel(small(transformers.ConvBertConfig, embedding_size=128))),
    "convnextv2": picture(lambda: transformers.ConvNextV2Model(transformers.ConvNextV2Config())),
    "data2vec": text(lambda: transformers.Data2VecTextModel(small(transformers.Data2VecTextConfig))),
    "deit": picture(lambda: transformers.DeiTModel(transformers.DeiTConfig(num_hidden_layers=4))),
    "diffusion": network(ResidualUNet, (1, 4, 32, 32)),
    "dinov2": picture(lambda: transformers.Dinov2Model(transformers.Dinov2Config(num_hidden_layers=4))),
    "distilbert": text(lambda: transformers.DistilBertModel(transformers.DistilBertConfig(n_layers=4))),
    "electra": text(lambda: transformers.ElectraModel(small(transformers.ElectraConfig, embedding_size=128))),
    "forecaster": network(Forecaster, (4, 7, 512)),
    "glpn": picture(lambda: transformers.GLPNModel(transformers.GLPNConfig())),
    "graph": network(Graph, (1, 400, 64), (1, 400, 400)),
    "keypoints": network(Keypoints, (1, 3, 256, 192)),
    "mixture": network(MixtureOfExperts, (1, 128, 256)),
    "mobilevit": picture(lambda: transformers.MobileViTModel(transformers.MobileViTConfig(), expand_output=False), 256),
    "pvt": picture(lambda: transformers.PvtModel(transformers.PvtConfig())),
    "roberta": text(lambda: transformers.RobertaModel(small(transformers.RobertaConfig))),
    "segformer": picture(lambda: transformers.SegformerModel(transformers.SegformerConfig()), 256),
    "separator": network(Separator, (1, 1, 16_000)),
    "stereo": network(Stereo, (1, 3, 96, 128), (1, 3, 96, 128)),
    "tagger": network(Tagger, (128, (1, 24, 16))),
    "wavenet": network(
        lambda: normalized(nn.Sequential(*[
            layer for n in range(8)
            for layer in (nn.Conv1d(1 if n == 0 else 64, 64, 2, dilation=2**n, padding=2**n), nn.Tanh())
        ])), (1, 1, 4000),
    ),
}
