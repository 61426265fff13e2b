"""Networks of further kinds: sizes that a run decides read by attention and by places in a picture, recurrences written
out, mixtures of experts with room for few, matching, decoding.

A function of the table KINDS returns the module; its arguments are the model's inputs in the order of list.toml.
"""

import torch
import torchvision
from torch import nn
from torch.nn import functional as F


class Durations(nn.Module):
    """Speech from tokens: each is repeated as often as the network says, then everything attends to everything."""

    def __init__(self, width=32):
        super().__init__()
        layer = lambda: nn.TransformerEncoderLayer(width, 2, 2 * width, batch_first=True, dropout=0)
        self.tokens, self.encode, self.decode = nn.Embedding(40, width), layer(), layer()
        self.duration = nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 1))
        self.last = nn.Linear(width, 20)

    def forward(self, ids):
        hidden = self.encode(self.tokens(ids))
        times = torch.exp(self.duration(hidden).squeeze(-1)) * 3
        times = torch.clamp(torch.round(times), min=1).long()[0]
        return self.last(self.decode(torch.repeat_interleave(hidden[0], times, dim=0)[None])), times


class Repeats(nn.Module):
    """Tokens that are repeated by durations, which are an input."""

    def __init__(self):
        super().__init__()
        self.tokens, self.last = nn.Embedding(40, 32), nn.Linear(32, 20)

    def forward(self, ids, times):
        return self.last(torch.repeat_interleave(self.tokens(ids), times, dim=0))


class RepeatsAll(nn.Module):
    """Every row as many times as an input says."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(16, 20)

    def forward(self, x, times: int):
        return self.last(torch.repeat_interleave(x, times, dim=0))


class Graphs(nn.Module):
    """Messages along edges, then means over the graphs of a batch; how many there are the largest number says."""

    def __init__(self):
        super().__init__()
        self.each = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32))
        self.last = nn.Linear(32, 5)

    def forward(self, x, edges, graph):
        hidden = self.each(x + torch.zeros_like(x).index_add(0, edges[1], x[edges[0]]))
        count = graph.max() + 1
        sums = torch.zeros(count, 32).index_add(0, graph, hidden)
        nodes = torch.zeros(count).index_add(0, graph, torch.ones_like(graph, dtype=torch.float))
        return self.last(sums / nodes.clamp(min=1)[:, None])


class KeyPoints(nn.Module):
    """Points of a picture whose score is the largest around them, and what the picture has there (as SuperPoint)."""

    def __init__(self):
        super().__init__()
        unit = lambda given, made: nn.Sequential(nn.Conv2d(given, made, 3, 2, 1), nn.ReLU())
        self.look = nn.Sequential(unit(1, 16), unit(16, 32), unit(32, 32))
        self.score, self.describe = nn.Conv2d(32, 65, 1), nn.Conv2d(32, 16, 1)

    def forward(self, x):
        seen = self.look(x)
        score = F.pixel_shuffle(self.score(seen).softmax(1)[:, :-1], 8).squeeze(1)
        is_peak = score == F.max_pool2d(score[:, None], 5, 1, 2)[:, 0]
        score = torch.where(is_peak, score, torch.zeros_like(score))[0]
        places = torch.nonzero(score > 0.016)
        size = torch.tensor([x.shape[3], x.shape[2]]).float()
        grid = (places.flip(1).float() + 0.5) / size * 2 - 1
        there = F.grid_sample(F.normalize(self.describe(seen), dim=1), grid[None, None], align_corners=False)
        return places, score[places[:, 0], places[:, 1]], there[0, :, 0].t()


class Pairs(nn.Module):
    """What each box that is found makes with each mask that is found: a table of which a run decides both extents."""

    def __init__(self):
        super().__init__()
        self.boxes, self.masks = nn.Linear(16, 8), nn.Linear(16, 8)
        self.each = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, boxes, masks):
        boxes, masks = self.boxes(boxes), self.masks(masks)
        boxes, masks = boxes[boxes[:, 0] > 0], masks[masks[:, 0] > 0]
        rows, columns = boxes.shape[0], masks.shape[0]
        pairs = torch.cat([boxes[:, None].expand(-1, columns, -1), masks[None].expand(rows, -1, -1)], -1)
        marks = self.each(pairs.reshape(-1, 16)).reshape(rows, columns, 4)
        return marks, torch.cat([boxes, boxes @ masks.T], 1), (boxes @ masks.T)[:, :2].sigmoid()


class StateSpace(nn.Module):
    """A block of Mamba, its scan written out position by position."""

    def __init__(self, width=32, states=8, rank=4):
        super().__init__()
        self.states, self.rank, wide = states, rank, 2 * width
        self.given, self.made = nn.Linear(width, 2 * wide), nn.Linear(wide, width)
        self.near = nn.Conv1d(wide, wide, 4, groups=wide, padding=3)
        self.choose, self.step = nn.Linear(wide, rank + 2 * states), nn.Linear(rank, wide)
        self.decay = nn.Parameter(torch.arange(1, states + 1).float().log().repeat(wide, 1))
        self.skip = nn.Parameter(torch.ones(wide))

    def forward(self, u):
        x, gate = self.given(u).chunk(2, -1)
        x = F.silu(self.near(x.transpose(1, 2))[:, :, :u.shape[1]]).transpose(1, 2)
        step, write, read = self.choose(x).split([self.rank, self.states, self.states], -1)
        step = F.softplus(self.step(step)).unsqueeze(-1)
        keep = torch.exp(step * -torch.exp(self.decay))
        add = step * write.unsqueeze(2) * x.unsqueeze(-1)
        state, found = torch.zeros_like(keep[:, 0]), []
        for place in range(u.shape[1]):
            state = keep[:, place] * state + add[:, place]
            found.append((state * read[:, place].unsqueeze(1)).sum(-1))
        return self.made((torch.stack(found, 1) + x * self.skip) * F.silu(gate))


class Capacity(nn.Module):
    """A mixture of experts that each take few tokens: places by cumulative sums, the rest is left out (as Switch)."""

    def __init__(self, width=32, experts=4, room=8):
        super().__init__()
        self.experts, self.room, self.gate = experts, room, nn.Linear(width, experts)
        self.weights = nn.Parameter(torch.randn(experts, width, width) / 6)

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        weight, which = self.gate(tokens).softmax(-1).max(-1)
        chosen = F.one_hot(which, self.experts)
        place = (chosen.cumsum(0) - 1) * chosen
        fits = (place < self.room) & (chosen > 0)
        sent = (F.one_hot(place.clamp(max=self.room - 1), self.room) * fits.unsqueeze(-1)).float()
        made = torch.relu(torch.bmm(torch.einsum("tec,td->ecd", sent, tokens), self.weights))
        return torch.einsum("tec,ecd->td", sent * weight[:, None, None], made).reshape(x.shape)


class Sampled(nn.Module):
    """Points far from one another, and what lies around each (as PointNet++)."""

    def __init__(self, chosen=16, near=8):
        super().__init__()
        self.chosen, self.near, self.last = chosen, near, nn.Linear(67, 10)
        self.each = nn.Sequential(nn.Conv2d(3, 32, 1), nn.ReLU(), nn.Conv2d(32, 64, 1), nn.ReLU())

    def forward(self, points):
        batch, count, _ = points.shape
        far, own, found = torch.zeros(batch, dtype=torch.long), torch.arange(batch), []
        distance = torch.full((batch, count), 1e10)
        for _ in range(self.chosen):
            found.append(far)
            distance = torch.minimum(distance, ((points - points[own, far][:, None]) ** 2).sum(-1))
            far = distance.max(-1).indices
        center = torch.gather(points, 1, torch.stack(found, 1)[..., None].expand(-1, -1, 3))
        apart = ((center[:, :, None] - points[:, None]) ** 2).sum(-1)
        near = torch.arange(count).expand(batch, self.chosen, count)
        near = torch.where(apart > 0.6, torch.full_like(near, count), near).sort(-1).values[:, :, :self.near]
        near = torch.where(near == count, near[:, :, :1].expand(-1, -1, self.near), near)
        all_points = points[:, None].expand(-1, self.chosen, -1, -1)
        group = torch.gather(all_points, 2, near[..., None].expand(-1, -1, -1, 3)) - center[:, :, None]
        seen = self.each(group.permute(0, 3, 1, 2)).max(-1).values.transpose(1, 2)
        return self.last(torch.cat([seen, center], -1).max(1).values)


class BestPath(nn.Module):
    """The likeliest tags of a sequence: a loop forward and one back (scripted)."""

    def __init__(self, tags: int = 5):
        super().__init__()
        self.moves, self.scores = nn.Parameter(torch.randn(tags, tags)), nn.Linear(12, tags)

    def forward(self, x):
        each = self.scores(x)
        best = each[:, 0]
        came = torch.jit.annotate(list[torch.Tensor], [])
        for place in range(1, each.size(1)):
            value, before = (best.unsqueeze(2) + self.moves).max(1)
            best = value + each[:, place]
            came.append(before)
        tag = best.argmax(1, keepdim=True)
        path = [tag]
        steps = torch.stack(came, 0)
        for place in range(steps.size(0)):
            tag = steps[steps.size(0) - 1 - place].gather(1, tag)
            path.append(tag)
        return torch.cat(path, 1).flip(1), best.max(1)[0]


class Bends(nn.Module):
    """A convolution whose taps the network moves (deformable convolution)."""

    def __init__(self):
        super().__init__()
        self.offset, self.mask = nn.Conv2d(8, 18, 3, padding=1), nn.Conv2d(8, 9, 3, padding=1)
        self.weight, self.bias = nn.Parameter(torch.randn(16, 8, 3, 3) / 8), nn.Parameter(torch.randn(16))

    def forward(self, x):
        mask = torch.sigmoid(self.mask(x))
        return torchvision.ops.deform_conv2d(x, self.offset(x) * 2, self.weight, self.bias, padding=1, mask=mask)


class Makes(nn.Module):
    """The weights of a convolution are made by another network, for each sample its own (as hypernetworks)."""

    def __init__(self):
        super().__init__()
        self.make = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 8 * 3 * 9 + 8))

    def forward(self, x, code):
        made, (batch, channels, height, width) = self.make(code), x.shape
        weights, bias = made[:, :216].reshape(batch * 8, 3, 3, 3), made[:, 216:].reshape(-1)
        together = x.reshape(1, batch * channels, height, width)
        return F.conv2d(together, weights, bias, padding=1, groups=batch).view(batch, 8, height, width)


def scripted(build):
    return lambda: torch.jit.script(build())


KINDS = {
    "durations": Durations,
    "repeats": Repeats,
    "repeats_all": scripted(RepeatsAll),
    "graphs": Graphs,
    "key_points": KeyPoints,
    "pairs": Pairs,
    "state_space": StateSpace,
    "capacity": Capacity,
    "sampled": Sampled,
    "best_path": scripted(BestPath),
    "bends": Bends,
    "makes": Makes,
}
