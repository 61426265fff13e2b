"""Networks of other kinds than those in zoo.py: detection, segmentation, video, sound, speech, language,
points, recommendation, images made or made larger. The same form as MODELS in zoo.py. They were
measured while the compiler was made faster: the development set of sets.py.
"""

import torch
import torch.nn.functional as F
import torchvision
from torch import nn


def normalized(model):
    """`model` in evaluation mode, with statistics of its batch normalisations that are not 0 and 1."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean.uniform_(-0.1, 0.1)
            module.running_var.uniform_(0.8, 1.2)
    return model.eval()


def network(build, *shapes):
    """An entry for `build()` on random numbers of `shapes`; a shape of integers below N is (N, shape)."""

    def make():
        inputs = {}
        for index, shape in enumerate(shapes):
            of_integers = isinstance(shape[1], tuple)
            numbers = torch.randint(0, *shape) if of_integers else torch.randn(*shape)
            inputs[f"x{index}"] = numbers
        return normalized(build()), inputs

    return make


def vision(name, batch=1):
    return network(lambda: torchvision.models.get_model(name, weights=None), (batch, 3, 224, 224))


class Segments(nn.Module):
    """The main output of one of torchvision's segmentation networks."""

    def __init__(self, name):
        super().__init__()
        self.inner = torchvision.models.get_model(name, weights=None, weights_backbone=None)

    def forward(self, x):
        return self.inner(x)["out"]


def segmentation(name):
    return network(lambda: Segments(name), (1, 3, 256, 256))


def video(name):
    return network(lambda: torchvision.models.get_model(name, weights=None), (1, 3, 8, 112, 112))


class Unit(nn.Sequential):
    """A convolution, a batch normalisation and SiLU."""

    def __init__(self, before, after, kernel=1, stride=1):
        convolution = nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(after), nn.SiLU())


class Partial(nn.Module):
    """Half of the channels go through residual units, all that comes about is kept (as in YOLO)."""

    def __init__(self, before, after, units):
        super().__init__()
        half = after // 2
        self.first = Unit(before, after)
        self.units = nn.ModuleList(
            nn.Sequential(Unit(half, half, 3), Unit(half, half, 3)) for _ in range(units)
        )
        self.last = Unit((2 + units) * half, after)

    def forward(self, x):
        kept = list(self.first(x).chunk(2, 1))
        for unit in self.units:
            kept.append(kept[-1] + unit(kept[-1]))
        return self.last(torch.cat(kept, 1))


class Pyramid(nn.Module):
    """Pools of three sizes beside one another."""

    def __init__(self, channels):
        super().__init__()
        self.first = Unit(channels, channels // 2)
        self.last = Unit(2 * channels, channels)

    def forward(self, x):
        kept = [self.first(x)]
        for _ in range(3):
            kept.append(F.max_pool2d(kept[-1], 5, 1, 2))
        return self.last(torch.cat(kept, 1))


class Detector(nn.Module):
    """A one-stage detector with two scales and boxes as distributions."""

    def __init__(self):
        super().__init__()
        early = [Unit(3, 16, 3, 2), Unit(16, 32, 3, 2), Partial(32, 32, 1)]
        self.early = nn.Sequential(*early, Unit(32, 64, 3, 2), Partial(64, 64, 2))
        self.middle = nn.Sequential(Unit(64, 128, 3, 2), Partial(128, 128, 2))
        self.late = nn.Sequential(Unit(128, 256, 3, 2), Partial(256, 256, 1), Pyramid(256))
        self.up = nn.ModuleList([Partial(384, 128, 1), Partial(192, 64, 1)])
        self.down, self.join = Unit(64, 64, 3, 2), Partial(192, 128, 1)
        self.heads = nn.ModuleList(
            nn.Sequential(Unit(width, 64, 3), Unit(64, 64, 3), nn.Conv2d(64, 144, 1))
            for width in (64, 128)
        )

    def forward(self, x):
        early = self.early(x)
        middle = self.middle(early)
        wide = lambda y: F.interpolate(y, scale_factor=2.0)
        coarse = self.up[0](torch.cat([wide(self.late(middle)), middle], 1))
        fine = self.up[1](torch.cat([wide(coarse), early], 1))
        joined = self.join(torch.cat([self.down(fine), coarse], 1))
        heads = [head(y).flatten(2) for head, y in zip(self.heads, (fine, joined))]
        boxes, classes = torch.cat(heads, 2).split([64, 80], 1)
        bins = boxes.view(1, 4, 16, -1).transpose(2, 1).softmax(1)
        sides = (bins * torch.arange(16.0).view(1, 16, 1, 1)).sum(1)
        return torch.cat([sides, classes.sigmoid()], 1)


class Waves(nn.Sequential):
    """Convolutions over raw sound, down to one vector in 20 ms (as in wav2vec 2.0)."""

    def __init__(self, width=512):
        layers, before = [], 1
        for index, (kernel, stride) in enumerate([(10, 5), *[(3, 2)] * 4, *[(2, 2)] * 2]):
            layers.append(nn.Conv1d(before, width, kernel, stride, bias=False))
            layers += [nn.GroupNorm(width, width)] if index == 0 else []
            layers.append(nn.GELU())
            before = width
        super().__init__(*layers, nn.Conv1d(width, width, 128, padding=64, groups=16))


class Larger(nn.Module):
    """An image of twice the size (residual blocks and a pixel shuffle)."""

    def __init__(self, width=64):
        super().__init__()
        convolution = lambda after: nn.Conv2d(width, after, 3, padding=1)
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(convolution(width), nn.ReLU(), convolution(width)) for _ in range(4)
        )
        self.shuffled, self.last = convolution(4 * width), convolution(3)

    def forward(self, x):
        x = first = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.last(F.pixel_shuffle(self.shuffled(first + x), 2))


class Temporal(nn.Module):
    """Dilated convolutions over time."""

    def __init__(self, width=64):
        super().__init__()
        self.first, self.last = nn.Conv1d(40, width, 1), nn.Conv1d(width, 30, 1)
        self.layers = nn.ModuleList(
            nn.Conv1d(width, width, 3, padding=2**level, dilation=2**level) for level in range(8)
        )

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = x + F.relu(layer(x))
        return self.last(x)


class Style(nn.Module):
    """An image in another style: mirrored borders, instance normalisations, nearest resizing."""

    def __init__(self):
        super().__init__()
        wide = nn.Upsample(scale_factor=2.0)
        unit = self.unit
        self.down = nn.Sequential(
            unit(3, 32, 9), nn.ReLU(), unit(32, 64, 3, 2), nn.ReLU(), unit(64, 128, 3, 2), nn.ReLU()
        )
        self.blocks = nn.ModuleList(
            nn.Sequential(unit(128, 128, 3), nn.ReLU(), unit(128, 128, 3)) for _ in range(3)
        )
        self.up = nn.Sequential(
            wide, unit(128, 64, 3), nn.ReLU(), wide, unit(64, 32, 3), nn.ReLU(),
            nn.ReflectionPad2d(4), nn.Conv2d(32, 3, 9),
        )

    @staticmethod
    def unit(before, after, kernel, stride=1):
        convolution = nn.Conv2d(before, after, kernel, stride)
        normalization = nn.InstanceNorm2d(after, affine=True)
        return nn.Sequential(nn.ReflectionPad2d(kernel // 2), convolution, normalization)

    def forward(self, x):
        x = self.down(x)
        for block in self.blocks:
            x = x + block(x)
        return self.up(x)


class Generator(nn.Sequential):
    """An image out of noise by transposed convolutions."""

    def __init__(self):
        layers = []
        for before, after in [(100, 512), (512, 256), (256, 128), (128, 64)]:
            stride, padding = (1, 0) if before == 100 else (2, 1)
            layers.append(nn.ConvTranspose2d(before, after, 4, stride, padding, bias=False))
            layers += [nn.BatchNorm2d(after), nn.ReLU()]
        super().__init__(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh())


class Volumes(nn.Module):
    """A U-Net over volumes."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList(map(self.block, [1, 16, 32], [16, 32, 64]))
        self.up = nn.ModuleList(nn.ConvTranspose3d(w, w // 2, 2, 2) for w in (64, 32))
        self.join = nn.ModuleList(map(self.block, [64, 32], [32, 16]))
        self.last = nn.Conv3d(16, 3, 1)

    @staticmethod
    def block(before, after):
        layers = []
        for width in (before, after):
            layers.append(nn.Conv3d(width, after, 3, padding=1))
            layers += [nn.InstanceNorm3d(after, affine=True), nn.LeakyReLU(0.01)]
        return nn.Sequential(*layers)

    def forward(self, x):
        kept = []
        for level, block in enumerate(self.down):
            x = block(F.max_pool3d(x, 2) if level else x)
            kept.append(x)
        kept.pop()
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([up(x), kept.pop()], 1))
        return self.last(x)


class Conformer(nn.Module):
    """One block of attention and depthwise convolution over time."""

    def __init__(self, width=144):
        super().__init__()
        self.before, self.after = self.dense(width), self.dense(width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.gated, self.last = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        self.depthwise = nn.Conv1d(width, width, 31, padding=15, groups=width)
        self.batch = nn.BatchNorm1d(width)

    @staticmethod
    def dense(width):
        inner = [nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU()]
        return nn.Sequential(*inner, nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + 0.5 * self.before(x)
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        y = F.glu(self.gated(self.norms[1](x).transpose(1, 2)), 1)
        x = x + self.last(F.silu(self.batch(self.depthwise(y)))).transpose(1, 2)
        return self.norms[2](x + 0.5 * self.after(x))


class Mixer(nn.Module):
    """Dense layers over places and over channels in turns."""

    def __init__(self, width=512, places=196):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.places = nn.ModuleList(self.dense(width, places, 256) for _ in range(4))
        self.channels = nn.ModuleList(self.dense(width, width, 4 * width) for _ in range(4))

    @staticmethod
    def dense(width, outer, inner):
        layers = [nn.Linear(outer, inner), nn.GELU(), nn.Linear(inner, outer)]
        return nn.ModuleDict({"norm": nn.LayerNorm(width), "dense": nn.Sequential(*layers)})

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        for places, channels in zip(self.places, self.channels):
            x = x + places["dense"](places["norm"](x).transpose(1, 2)).transpose(1, 2)
            x = x + channels["dense"](channels["norm"](x))
        return x.mean(1)


class Points(nn.Module):
    """A cloud of points, each on its own, then the largest of all."""

    def __init__(self):
        super().__init__()
        layers = []
        for before, after in [(3, 64), (64, 128)]:
            layers += [nn.Conv1d(before, after, 1), nn.BatchNorm1d(after), nn.ReLU()]
        self.each = nn.Sequential(*layers, nn.Conv1d(128, 1024, 1))
        self.all = nn.Sequential(nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 40))

    def forward(self, x):
        return self.all(self.each(x).max(2)[0])


class Recommender(nn.Module):
    """Embeddings, their products with one another, and dense layers."""

    def __init__(self, kinds=8, width=64):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(1000, width) for _ in range(kinds))
        self.dense = nn.Sequential(
            nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, width), nn.ReLU()
        )
        pairs = torch.tril_indices(kinds + 1, kinds + 1, -1)
        self.register_buffer("pairs", pairs)
        wide = width + pairs.shape[1]
        self.last = nn.Sequential(nn.Linear(wide, 512), nn.ReLU(), nn.Linear(512, 1), nn.Sigmoid())

    def forward(self, numbers, kinds):
        dense = self.dense(numbers)
        embedded = [table(kinds[:, index]) for index, table in enumerate(self.embeddings)]
        vectors = torch.stack([dense, *embedded], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        return self.last(torch.cat([dense, products[:, self.pairs[0], self.pairs[1]]], 1))


class Translator(nn.Module):
    """An encoder and a decoder that looks back only."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Transformer(256, 8, 2, 2, 1024, batch_first=True, activation="gelu")

    def forward(self, source, target):
        length = target.shape[1]
        mask = torch.triu(torch.full((length, length), float("-inf")), 1)
        return self.inner(source, target, tgt_mask=mask)


class Rotary(nn.Module):
    """A language model with rotary positions, grouped heads, gates and root-mean-square norms."""

    def __init__(self, width=512, heads=8, groups=2, layers=4, length=64, words=1000):
        super().__init__()
        self.heads, self.groups, self.each = heads, groups, width // heads
        self.embedding = nn.Embedding(words, width)
        linear = lambda before, after: nn.Linear(before, after, bias=False)
        narrow, wide = groups * self.each, 1376
        self.layers = nn.ModuleList(
            nn.ModuleDict({
                "query": linear(width, width), "key": linear(width, narrow),
                "value": linear(width, narrow), "joined": linear(width, width),
                "gate": linear(width, wide), "up": linear(width, wide), "down": linear(wide, width),
            })
            for _ in range(layers)
        )
        norms = (nn.Parameter(torch.ones(width)) for _ in range(2 * layers + 1))
        self.norms, self.last = nn.ParameterList(norms), linear(width, words)
        rates = 10000.0 ** -(torch.arange(0, self.each, 2) / self.each)
        angles = torch.outer(torch.arange(length), rates).repeat(1, 2)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())
        self.register_buffer("mask", torch.triu(torch.full((length, length), float("-inf")), 1))

    @staticmethod
    def normalize(x, weight):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight

    def rotated(self, x):
        left, right = x.chunk(2, -1)
        return x * self.cosine + torch.cat([-right, left], -1) * self.sine

    def attention(self, x, layer):
        split = lambda y: y.view(1, x.shape[1], -1, self.each).transpose(1, 2)
        repeated = lambda y: y.repeat_interleave(self.heads // self.groups, 1)
        query = self.rotated(split(layer["query"](x)))
        key = repeated(self.rotated(split(layer["key"](x))))
        scores = query @ key.transpose(-1, -2) / self.each**0.5 + self.mask
        value = torch.softmax(scores, -1) @ repeated(split(layer["value"](x)))
        return layer["joined"](value.transpose(1, 2).flatten(2))

    def forward(self, tokens):
        x = self.embedding(tokens)
        for index, layer in enumerate(self.layers):
            x = x + self.attention(self.normalize(x, self.norms[2 * index]), layer)
            y = self.normalize(x, self.norms[2 * index + 1])
            x = x + layer["down"](F.silu(layer["gate"](y)) * layer["up"](y))
        return self.last(self.normalize(x, self.norms[-1]))


def encoder(width, heads, layers):
    layer = nn.TransformerEncoderLayer(
        width, heads, 4 * width, activation="gelu", batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


class Listener(nn.Module):
    """An encoder of spectrograms (as in Whisper)."""

    def __init__(self, width=384):
        super().__init__()
        self.first = nn.Conv1d(80, width, 3, padding=1)
        self.second = nn.Conv1d(width, width, 3, 2, 1)
        self.encoder = encoder(width, 6, 4)

    def forward(self, x):
        x = F.gelu(self.second(F.gelu(self.first(x))))
        return self.encoder(x.transpose(1, 2))


class Speech(nn.Module):
    """A convolution over a spectrogram and recurrent layers in both directions."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 32, (11, 41), (2, 2), (5, 20))
        self.layers = nn.GRU(32 * 40, 256, 2, batch_first=True, bidirectional=True)
        self.last = nn.Linear(512, 29)

    def forward(self, x):
        x = F.hardtanh(self.first(x), 0, 20).permute(0, 3, 1, 2).flatten(2)
        return self.last(self.layers(x)[0])


class Sharp(nn.Module):
    """Attention with a mask and scores far apart, whose exponentials are subnormal numbers."""

    def __init__(self, width=256):
        super().__init__()
        self.inner = nn.Linear(width, 3 * width)
        self.last = nn.Linear(width, width)

    def forward(self, x):
        parts = self.inner(x).unflatten(-1, (3, 8, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts[0], parts[1], parts[2]
        distance = torch.arange(x.shape[1], dtype=torch.float32)
        # From one position to the next 0.75 less: exp(-87.3) is the smallest normal number.
        bias = -0.75 * (distance[:, None] - distance[None, :]).abs()
        weights = F.softmax(query @ key.transpose(-1, -2) + bias, -1)
        return self.last((weights @ value).transpose(1, 2).flatten(2))


def dense():
    return nn.Sequential(
        nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)
    )


VISION = [
    "alexnet", "convnext_tiny", "efficientnet_v2_s", "googlenet", "maxvit_t", "mnasnet1_0",
    "mobilenet_v3_small", "regnet_y_400mf", "resnext50_32x4d", "shufflenet_v2_x1_0", "swin_t",
    "wide_resnet50_2",
]
BATCHED = [("resnet18", 8), ("mobilenet_v2", 8), ("mobilenet_v2", 32)]
SEGMENTATION = ["deeplabv3_resnet50", "fcn_resnet50", "lraspp_mobilenet_v3_large"]

class Decoder(nn.Module):
    """The next token of a language model: one position, and the keys and values of those before it."""

    class Norm(nn.Module):
        """By the root of the mean square, as exporters before opset 23 write it."""

        def __init__(self, width):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x):
            return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.weight

    class Layer(nn.Module):
        def __init__(self, width, heads, groups, inner):
            super().__init__()
            self.heads, self.groups, self.size = heads, groups, width // heads
            self.norms = nn.ModuleList([Decoder.Norm(width), Decoder.Norm(width)])
            kept = groups * self.size
            self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(width, kept, bias=False)
            self.value, self.out = nn.Linear(width, kept, bias=False), nn.Linear(width, width, bias=False)
            self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
            self.down = nn.Linear(inner, width, bias=False)

        def attend(self, x, keys, values, turn):
            parts = lambda y, count: y.reshape(1, 1, count, self.size).transpose(1, 2)
            turned = lambda y: y * turn[0] + torch.cat([-y[..., self.size // 2:], y[..., : self.size // 2]], -1) * turn[1]
            query = turned(parts(self.query(x), self.heads))
            keys = torch.cat([keys, turned(parts(self.key(x), self.groups))], 2)
            values = torch.cat([values, parts(self.value(x), self.groups)], 2)
            query = query.reshape(1, self.groups, self.heads // self.groups, self.size)
            scores = torch.softmax(query @ keys.transpose(2, 3) / self.size**0.5, -1)
            return self.out((scores @ values).reshape(1, 1, -1)), keys, values

        def forward(self, x, keys, values, turn):
            y, keys, values = self.attend(self.norms[0](x), keys, values, turn)
            x = x + y
            y = self.norms[1](x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y)), keys, values

    def __init__(self, layers=8, width=1024, heads=16, groups=4, inner=4096, words=32_000, place=127):
        super().__init__()
        self.layers = nn.ModuleList([self.Layer(width, heads, groups, inner) for _ in range(layers)])
        self.norm, self.head = self.Norm(width), nn.Linear(width, words, bias=False)
        angles = place / 10_000 ** (torch.arange(0, width // heads, 2) / (width // heads))
        self.register_buffer("turn", torch.stack([angles.cos(), angles.sin()]).repeat(1, 2))

    def forward(self, x, *past):
        kept = []
        for number, layer in enumerate(self.layers):
            x, keys, values = layer(x, past[2 * number], past[2 * number + 1], self.turn)
            kept += [keys, values]
        return self.head(self.norm(x)), *kept


MODELS = {
    **{name: vision(name) for name in VISION},
    **{name: segmentation(name) for name in SEGMENTATION},
    **{f"{name}_batch{count}": vision(name, count) for name, count in BATCHED},
    **{name: video(name) for name in ["r2plus1d_18", "r3d_18"]},
    "conformer": network(Conformer, (1, 200, 144)),
    "decoder": network(Decoder, (1, 1, 1024), *[(1, 4, 127, 64)] * 16),
    "dense": network(dense, (1, 784)),
    "dense_batch": network(dense, (32, 784)),
    "detector": network(Detector, (1, 3, 320, 320)),
    "generator": network(Generator, (1, 100, 1, 1)),
    "larger": network(Larger, (1, 3, 128, 128)),
    "listener": network(Listener, (1, 80, 600)),
    "mixer": network(Mixer, (1, 3, 224, 224)),
    "points": network(Points, (1, 3, 1024)),
    "recommender": network(Recommender, (32, 13), (1000, (32, 8))),
    "rotary": network(Rotary, (1000, (1, 64))),
    "sharp": network(Sharp, (1, 192, 256)),
    "speech": network(Speech, (1, 1, 80, 200)),
    "style": network(Style, (1, 3, 128, 128)),
    "temporal": network(Temporal, (1, 40, 500)),
    "transformer": network(lambda: encoder(256, 4, 4), (1, 512, 256)),
    "translator": network(Translator, (1, 64, 256), (1, 48, 256)),
    "volumes": network(Volumes, (1, 1, 32, 64, 64)),
    "waves": network(Waves, (1, 1, 16_000)),
}
