"""The architectures of the benchmarks and operator lists, with seeded random weights.

Every entry of MODELS makes a module in evaluation mode and its example inputs, by name. The
convolutional networks see a few batches of noise first, so that their batch normalisations hold the
statistics of their own activations instead of zeros and ones.
"""

import numpy as np
import torch
import torchvision
import transformers
from torch import nn

import cliffs
import more
import others
import restoration


def calibrated(model, shape):
    """`model` in evaluation mode, its batch normalisations fed with two batches of noise."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None
    model.train()
    with torch.no_grad():
        for _ in range(2):
            model(torch.randn(4, *shape))
    return model.eval()


def image_model(build, size=224):
    def make():
        model = build()
        if any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
            model = calibrated(model, (3, size, size))
        return model.eval(), {"x": torch.randn(1, 3, size, size)}

    return make


class UNet(nn.Module):
    """A U-Net of four levels; going up by transposed convolution or by resizing."""

    def __init__(self, up, base=32, classes=2):
        super().__init__()
        widths = [base * 2**level for level in range(4)]
        self.down = nn.ModuleList(
            self.block(before, after) for before, after in zip([3, *widths], widths)
        )
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ModuleList(up(wide, wide // 2) for wide in reversed(widths[1:]))
        self.join = nn.ModuleList(self.block(wide, wide // 2) for wide in reversed(widths[1:]))
        self.head = nn.Conv2d(base, classes, 1)

    @staticmethod
    def block(before, after):
        layers = []
        for width in (before, after):
            layers += [
                nn.Conv2d(width, after, 3, padding=1, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(),
            ]
        return nn.Sequential(*layers)

    def forward(self, x):
        skipped = []
        for level, block in enumerate(self.down):
            x = block(self.pool(x) if level else x)
            skipped.append(x)
        skipped.pop()
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([skipped.pop(), up(x)], dim=1))
        return self.head(x)


def by_transposed_convolution(before, after):
    return nn.ConvTranspose2d(before, after, 2, stride=2)


def by_resizing(mode):
    def up(before, after):
        corners = {"align_corners": False} if mode == "bilinear" else {}
        return nn.Sequential(
            nn.Upsample(scale_factor=2, mode=mode, **corners), nn.Conv2d(before, after, 1)
        )

    return up


class RecurrentClassifier(nn.Module):
    """Embedding, recurrent layers in both directions, and a linear head on the last step."""

    def __init__(self, layer, words=10_000, width=128, hidden=256, classes=5):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = layer(width, hidden, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * hidden, classes)

    def forward(self, tokens):
        steps, _ = self.layers(self.embedding(tokens))
        return self.head(steps[:, -1])


class Outputs(nn.Module):
    """A transformers model with a plain tuple of the named outputs as its result."""

    def __init__(self, model, *names):
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *arguments):
        result = self.model(*arguments)
        return tuple(result[name] for name in self.names)


def tokens(count, words):
    return torch.randint(0, words, (1, count))


def bert_base(length=128):
    config = transformers.BertConfig(attn_implementation="eager")
    model = Outputs(transformers.BertModel(config), "last_hidden_state", "pooler_output")
    inputs = {
        "input_ids": tokens(length, config.vocab_size),
        "attention_mask": torch.ones(1, length, dtype=torch.int64),
        "token_type_ids": torch.zeros(1, length, dtype=torch.int64),
    }
    # The last quarter is padding, so that the mask matters.
    inputs["attention_mask"][:, 3 * length // 4 :] = 0
    return model.eval(), inputs


def gpt2(length=64):
    config = transformers.GPT2Config(attn_implementation="eager", use_cache=False)
    model = Outputs(transformers.GPT2LMHeadModel(config), "logits")

    class Causal(nn.Module):
        """Arguments by the names that a user passes them by."""

        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, input_ids, attention_mask):
            return self.inner(input_ids, None, attention_mask)

    inputs = {
        "input_ids": tokens(length, config.vocab_size),
        "attention_mask": torch.ones(1, length, dtype=torch.int64),
    }
    return Causal().eval(), inputs


def recurrent(layer):
    return lambda: (RecurrentClassifier(layer).eval(), {"tokens": tokens(64, 10_000)})


def vision(name, size=224, **options):
    return image_model(lambda: getattr(torchvision.models, name)(weights=None, **options), size)


def unet(up):
    return image_model(lambda: UNet(up), 256)


MODELS = {
    "resnet50": vision("resnet50"),
    "mobilenet_v2": vision("mobilenet_v2"),
    "bert-base": bert_base,
    "resnet18": vision("resnet18"),
    "resnet101": vision("resnet101"),
    "mobilenet_v3_large": vision("mobilenet_v3_large"),
    "efficientnet_b0": vision("efficientnet_b0"),
    "densenet121": vision("densenet121"),
    "squeezenet1_1": vision("squeezenet1_1"),
    "inception_v3": vision("inception_v3", 299, init_weights=True),
    "vgg16": vision("vgg16"),
    "unet_transposed": unet(by_transposed_convolution),
    "unet_bilinear": unet(by_resizing("bilinear")),
    "unet_nearest": unet(by_resizing("nearest")),
    "vit_b_16": vision("vit_b_16"),
    "gpt2": gpt2,
    "lstm": recurrent(nn.LSTM),
    "gru": recurrent(nn.GRU),
}


def unlike_each_other(model):
    """Moves equal numbers apart: an exporter shares what is equal, training never is. Matrices of zeros,
    as the heads of some networks begin, get random numbers: what a zero matrix gives shows nothing."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1 and (parameter == parameter[0]).all():
                parameter.add_(0.02 * torch.randn_like(parameter))
            if parameter.dim() > 1 and (parameter == 0).all():
                parameter.normal_(0.0, 0.02)


def make(name):
    """The module and its inputs (name to tensor) for `name`, here, in others.py, restoration.py, more.py or
    cliffs.py, from a fixed seed."""
    torch.manual_seed(20)
    np.random.seed(20)
    models = {**others.MODELS, **restoration.MODELS, **more.MODELS, **cliffs.MODELS, **MODELS}
    model, inputs = models[name]()
    unlike_each_other(model)
    return model, inputs
