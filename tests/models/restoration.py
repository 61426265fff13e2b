"""Networks that restore images and predict frames, of the development set.

Their halves of channels are multiplied with each other, they normalize the channels of every pixel, and what they compute
is added to the image that they were given.
"""

import torch
from torch import nn
from torch.nn import functional

from others import network


def halves(x):
    return x.chunk(2, dim=1)


class PixelNorm(nn.LayerNorm):
    """Layer normalization over the channels of `[N, C, H, W]`, by way of rows."""

    def forward(self, x):
        rows = x.flatten(2).transpose(1, 2)
        return super().forward(rows).transpose(1, 2).reshape(x.shape)


class GatedBlock(nn.Module):
    """A block of NAFNet (Chen et al., 2022): gates are products of halves of the channels."""

    def __init__(self, width):
        super().__init__()
        self.norms = nn.ModuleList(PixelNorm(width) for _ in range(2))
        self.before = nn.ModuleList(nn.Conv2d(width, 2 * width, 1) for _ in range(2))
        self.window = nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2 * width)
        self.weighs = nn.Conv2d(width, width, 1)
        self.after = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(2))

    def forward(self, x):
        left, right = halves(self.window(self.before[0](self.norms[0](x))))
        gated = left * right
        x = x + self.after[0](gated * self.weighs(gated.mean((2, 3), keepdim=True)))
        left, right = halves(self.before[1](self.norms[1](x)))
        return x + self.after[1](left * right)


class Restores(nn.Module):
    """Two levels of gated blocks; the result is added to the image."""

    def __init__(self, width=32):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.outer = nn.ModuleList(GatedBlock(width) for _ in range(2))
        self.inner = GatedBlock(2 * width)
        self.down, self.up = nn.Conv2d(width, 2 * width, 2, 2), nn.Conv2d(2 * width, 4 * width, 1)

    def forward(self, x):
        kept = self.outer[0](self.first(x))
        deep = functional.pixel_shuffle(self.up(self.inner(self.down(kept))), 2)
        return x + self.last(self.outer[1](kept + deep))


class ChannelAttention(nn.Module):
    """A block of Restormer (Zamir et al., 2022): attention between channels, then a gated feed-forward part."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.scale = heads, nn.Parameter(torch.ones(heads, 1, 1))
        self.norms = nn.ModuleList(PixelNorm(width) for _ in range(2))
        self.before = nn.ModuleList(nn.Conv2d(width, times * width, 1, bias=False) for times in (3, 4))
        self.windows = nn.ModuleList(
            nn.Conv2d(times * width, times * width, 3, padding=1, groups=times * width, bias=False) for times in (3, 4))
        self.after = nn.ModuleList(nn.Conv2d(times * width, width, 1, bias=False) for times in (1, 2))

    def forward(self, x):
        parts = self.windows[0](self.before[0](self.norms[0](x))).chunk(3, dim=1)
        shape = (x.shape[0], self.heads, x.shape[1] // self.heads, -1)
        queries, keys, values = (part.reshape(shape) for part in parts)
        queries, keys = functional.normalize(queries, dim=-1), functional.normalize(keys, dim=-1)
        weights = (queries @ keys.transpose(-1, -2) * self.scale).softmax(-1)
        x = x + self.after[0]((weights @ values).reshape(x.shape))
        left, right = halves(self.windows[1](self.before[1](self.norms[1](x))))
        return x + self.after[1](functional.gelu(left) * right)


class Frames(nn.Module):
    """A convolutional LSTM (Shi et al., 2015) over frames, whose gates are one convolution of frame and state."""

    def __init__(self, width=32):
        super().__init__()
        self.width = width
        self.gates, self.head = nn.Conv2d(3 + width, 4 * width, 3, padding=1), nn.Conv2d(width, 1, 1)

    def forward(self, frames):
        state = torch.zeros(frames.shape[0], self.width, *frames.shape[3:])
        cell = state
        for step in range(frames.shape[1]):
            taken, kept, given, new = self.gates(torch.cat([frames[:, step], state], 1)).chunk(4, dim=1)
            cell = kept.sigmoid() * cell + taken.sigmoid() * new.tanh()
            state = given.sigmoid() * cell.tanh()
        return self.head(state)


MODELS = {
    "channel_attention": network(
        lambda: nn.Sequential(
            nn.Conv2d(3, 48, 3, padding=1), ChannelAttention(48, 1), nn.Conv2d(48, 24, 3, padding=1),
            nn.PixelUnshuffle(2), ChannelAttention(96, 2), nn.Conv2d(96, 12, 3, padding=1), nn.PixelShuffle(2)),
        (1, 3, 96, 96)),
    "frames": network(Frames, (1, 8, 3, 48, 48)),
    "restores": network(Restores, (1, 3, 128, 128)),
}
