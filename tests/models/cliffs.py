"""Small networks of one kind of node each: forms that a compiler is easily slow at although the work is little.
The same form as MODELS in zoo.py; the set `cliffs` of sets.py.
"""

import torch
import torch.nn.functional as F
from torch import nn

from others import network


class Of(nn.Module):
    """`function` of the inputs and of `parts`, which are its own networks."""

    def __init__(self, function, *parts):
        super().__init__()
        self.function = function
        self.parts = nn.ModuleList(parts)

    def forward(self, *inputs):
        return self.function(*self.parts, *inputs)


def function(compute, *shapes):
    return network(lambda: Of(compute), *shapes)


def around(middle, channels=64, extent=56):
    """`middle` between two convolutions."""

    def build():
        first = nn.Conv2d(channels, channels, 3, padding=1)
        last = nn.Conv2d(channels, channels, 3, padding=1)
        return Of(lambda first, inner, last, x: last(inner(first(x))), first, middle(), last)

    return network(build, (1, channels, extent, extent))


def recurrent(steps, hidden=64):
    """The output sequence of an LSTM."""
    return network(lambda: Of(lambda lstm, x: lstm(x)[0], nn.LSTM(hidden, hidden)), (steps, 1, hidden))


def split(x):
    left, middle, right = torch.split(x, [24, 20, 20], 1)
    return torch.cat([torch.relu(right), left, middle], 1)


def along_channels(x):
    """A network over a sequence, written as images of width 1."""
    return (1, 128, x, 1)


MODELS = {
    # Convolutions whose weights are inputs, as a network that makes weights has them.
    "weights_input": function(lambda x, w: F.conv2d(x, w, padding=1), (1, 64, 56, 56), (64, 64, 3, 3)),
    "weights_input_stride2": function(
        lambda x, w: F.conv2d(x, w, stride=2, padding=1), (1, 64, 56, 56), (128, 64, 3, 3)
    ),
    "weights_input_1x1": function(F.conv2d, (1, 256, 28, 28), (256, 256, 1, 1)),
    "weights_input_depthwise": function(
        lambda x, w: F.conv2d(x, w, padding=1, groups=256), (1, 256, 28, 28), (256, 1, 3, 3)
    ),
    "weights_input_linear": function(F.linear, (128, 768), (768, 768)),
    # Groups too wide to be merged and too narrow to fill vectors.
    "groups_stride2": network(
        lambda: nn.Conv2d(192, 192, 3, 2, 1, groups=4), (1, 192, 28, 28)
    ),
    # Groups that end inside of vectors, as those of RegNets.
    "groups_of_24": network(
        lambda: nn.Sequential(
            nn.Conv2d(336, 336, 1), nn.ReLU(), nn.Conv2d(336, 336, 3, 1, 1, groups=14), nn.ReLU(),
            nn.Conv2d(336, 336, 1),
        ),
        (1, 336, 14, 14),
    ),
    "groups_of_56": network(
        lambda: nn.Sequential(nn.Conv2d(448, 448, 3, 1, 1, groups=8), nn.ReLU(), nn.Conv2d(448, 448, 1)),
        (1, 448, 14, 14),
    ),
    # Products with few rows or columns.
    "few_rows_transposed": function(lambda a, b: a @ b.T, (4, 1024), (1024, 1024)),
    "one_row_transposed": function(lambda a, b: a @ b.T, (1, 2048), (4096, 2048)),
    "few_rows": function(torch.matmul, (4, 1024), (1024, 1024)),
    "one_column": function(torch.matmul, (1024, 1024), (1024, 1)),
    "one_column_constant": network(lambda: nn.Linear(1024, 1), (1024, 1024)),
    "heads_one_query": function(
        lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2), -1) @ v,
        (1, 12, 1, 64), (1, 12, 512, 64), (1, 12, 512, 64),
    ),
    # Axes of extent 1.
    "unit_axis_depthwise": network(
        lambda: nn.Conv2d(128, 128, (5, 1), padding=(2, 0), groups=128), along_channels(1024)
    ),
    "unit_axis_pool": network(lambda: nn.AvgPool2d((4, 1), (2, 1)), along_channels(1024)),
    "unit_axis_convolution": network(lambda: nn.Conv2d(128, 128, (3, 1), padding=(1, 0)), along_channels(512)),
    # What lies between convolutions.
    "group_norm": around(lambda: nn.Sequential(nn.GroupNorm(8, 64), nn.SiLU())),
    "split_concat": around(lambda: Of(split)),
    "channel_softmax": around(lambda: nn.Softmax(1)),
    "pixel_shuffle": around(lambda: nn.Sequential(nn.PixelUnshuffle(2), nn.PixelShuffle(2))),
    # Windows.
    "batch_strided": network(lambda: nn.Conv2d(128, 256, 3, 2, 1), (8, 128, 28, 28)),
    "batch_window5": network(lambda: nn.Conv2d(64, 64, 5, 1, 2), (8, 64, 28, 28)),
    "windows_3d": network(lambda: nn.Conv3d(32, 64, 3, padding=1), (1, 32, 8, 28, 28)),
    "transposed_stride2": network(lambda: nn.ConvTranspose2d(128, 64, 4, 2, 1), (1, 128, 28, 28)),
    "transposed_stride1": network(lambda: nn.ConvTranspose2d(128, 64, 3, 1, 1), (1, 128, 28, 28)),
    "transposed_depthwise": network(
        lambda: nn.ConvTranspose2d(128, 128, 4, 2, 1, groups=128), (1, 128, 28, 28)
    ),
    # Order, running sums, steps in time.
    "top_k": function(lambda x: torch.topk(x, 100), (1, 20_000)),
    "top_5_of_millions": function(lambda x: torch.topk(x, 5), (1, 4_000_000)),
    "top_k_rows": function(lambda x: torch.topk(x, 2), (1024, 64)),
    "sort": function(lambda x: torch.sort(x, descending=True), (16, 4096)),
    "arg_max": function(lambda x: torch.argmax(x, -1), (128, 32_000)),
    "cumulative_sum": function(lambda x: torch.cumsum(x, 1), (1, 1_000_000)),
    "cumulative_sum_rows": function(lambda x: torch.cumsum(x, 1), (64, 4096)),
    "cumulative_sum_columns": function(lambda x: torch.cumsum(x, 0), (512, 256)),
    "lstm_512": recurrent(512),
    "lstm_16384": recurrent(16_384),
    "gru_512": network(lambda: Of(lambda gru, x: gru(x)[0], nn.GRU(128, 128)), (512, 1, 128)),
    "lstm_batch": network(lambda: Of(lambda lstm, x: lstm(x)[0], nn.LSTM(256, 256)), (128, 16, 256)),
}
