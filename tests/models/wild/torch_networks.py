"""The architectures of the corpus that torch exports, small and with seeded weights.

list.toml says which exporter writes each of them, at which opset, and which axes stay open. A function of the table
NETWORKS returns the module; its arguments are the model's inputs in the list's order.
"""

import pathlib
import sys

import torch
import torchvision
import transformers
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import more
import others
import torch_kinds
import zoo

WORDS = 300


def vision(name, **options):
    return lambda: others.normalized(torchvision.models.get_model(name, weights=None, **options))


class Detects(nn.Module):
    """One of torchvision's detectors on one image: boxes, scores and labels after suppression."""

    def __init__(self, name, **options):
        super().__init__()
        self.inner = torchvision.models.get_model(name, weights=None, weights_backbone=None, **options)

    def forward(self, image):
        found = self.inner([image])[0]
        return found["boxes"], found["scores"], found["labels"]


class Flow(nn.Module):
    """Optical flow between two images, refined twice."""

    def __init__(self):
        super().__init__()
        self.inner = torchvision.models.optical_flow.raft_small(weights=None)

    def forward(self, before, after):
        return self.inner(before, after, num_flow_updates=2)[-1]


class First(nn.Module):
    """The fields `names` of what a network of transformers returns, for inputs passed by `arguments`."""

    def __init__(self, inner, arguments, names, **fixed):
        super().__init__()
        self.inner, self.arguments, self.names, self.fixed = inner, arguments, names, fixed

    def forward(self, *values):
        found = self.inner(**dict(zip(self.arguments, values)), **self.fixed)
        return tuple(found[name] for name in self.names)


def of(configuration, model, arguments, names, fixed=None, **sizes):
    """A network of transformers with the given sizes."""

    def make():
        return First(model(configuration(**sizes)), arguments, names, **(fixed or {}))

    return make


def text(configuration, model, names=("last_hidden_state",), arguments=("input_ids", "attention_mask"), **sizes):
    common = {"vocab_size": WORDS, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
              "intermediate_size": 128}
    return of(configuration, model, arguments, names, **{**common, **sizes})


class Decodes(nn.Module):
    """A decoder with the keys and values of earlier tokens as inputs and outputs."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, input_ids, attention_mask, *past):
        cache = transformers.DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        found = self.inner(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True)
        now = [part for layer in found.past_key_values.layers for part in (layer.keys, layer.values)]
        return (found.logits, *now)


def decoder(configuration, model, **sizes):
    return lambda: Decodes(model(configuration(**sizes)))


class Sentence(nn.Module):
    """The mean of a sentence's words that are not padding, of length one."""

    def __init__(self):
        super().__init__()
        self.inner = text(transformers.BertConfig, transformers.BertModel)()

    def forward(self, ids, mask):
        words = self.inner(ids, mask)[0]
        weight = mask.unsqueeze(-1).float()
        return nn.functional.normalize((words * weight).sum(1) / weight.sum(1).clamp(min=1e-9), dim=1)


class Tags(nn.Module):
    """Words, a recurrent layer in both directions, a tag for each word."""

    def __init__(self, layer):
        super().__init__()
        self.words = nn.Embedding(WORDS, 32)
        self.layer = layer(32, 48, num_layers=2, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(96, 9)

    def forward(self, ids):
        return self.tags(self.layer(self.words(ids))[0]).argmax(-1), self.tags(self.layer(self.words(ids))[0])


class Reads(nn.Module):
    """Convolutions over the picture of a line of text, a recurrent layer, letters (as in CRNN)."""

    def __init__(self):
        super().__init__()
        self.look = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d((2, 1), (2, 1)), nn.Conv2d(32, 64, (8, 1)), nn.ReLU())
        self.read = nn.LSTM(64, 48, bidirectional=True)
        self.letters = nn.Linear(96, 40)

    def forward(self, x):
        seen = self.look(x).squeeze(2).permute(2, 0, 1)
        return self.letters(self.read(seen)[0]).log_softmax(-1)


class Scatters(nn.Module):
    """Messages along the edges of a graph, summed and averaged where they arrive."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.own = nn.Linear(16, 32), nn.Linear(32, 8), nn.Linear(16, 32)

    def forward(self, nodes, edges):
        source, target = edges[0], edges[1]
        sums = torch.zeros(nodes.shape[0], 32).index_add(0, target, self.one(nodes)[source])
        count = torch.zeros(nodes.shape[0]).index_add(0, target, torch.ones(target.shape[0]))
        hidden = torch.relu(self.own(nodes) + sums / count.clamp(min=1).unsqueeze(1))
        return torch.zeros(nodes.shape[0], 8).scatter_add(
            0, target.unsqueeze(1).expand(-1, 8), self.two(hidden)[source])


class Neighbours(nn.Module):
    """A cloud of points; each looks at its nearest neighbours (as in DGCNN)."""

    def __init__(self):
        super().__init__()
        self.edges, self.last = nn.Linear(6, 32), nn.Linear(32, 10)

    def forward(self, points):
        distance = torch.cdist(points, points)
        near = distance.topk(8, dim=-1, largest=False).indices
        batch = torch.arange(points.shape[0]).view(-1, 1, 1)
        there = points[batch, near]
        here = points.unsqueeze(2).expand_as(there)
        features = torch.relu(self.edges(torch.cat([here, there - here], -1))).max(2).values
        return self.last(features.max(1).values)


class Bags(nn.Module):
    """Sums of embeddings of a row's categories, and a dense part (wide and deep)."""

    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(500, 16, mode="sum")
        self.mean = nn.EmbeddingBag(500, 16, mode="mean")
        self.dense = nn.Sequential(nn.Linear(45, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, categories, numbers):
        parts = [self.bag(categories), self.mean(categories), numbers]
        return torch.sigmoid(self.dense(torch.cat(parts, 1)))


class Spectrum(nn.Module):
    """Sound to the logarithm of its spectrum's magnitudes, then a dense layer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(256))
        self.dense = nn.Linear(129, 20)

    def forward(self, sound):
        found = torch.stft(sound, 256, 128, window=self.window, center=False, return_complex=False, onesided=True)
        return self.dense(found.pow(2).sum(-1).clamp(min=1e-6).log().transpose(1, 2))


class Turns(nn.Module):
    """A spatial transformer: the network turns the picture before it looks at it."""

    def __init__(self):
        super().__init__()
        self.angle = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 6))
        self.look = nn.Conv2d(3, 8, 3)

    def forward(self, x):
        grid = nn.functional.affine_grid(self.angle(x).view(-1, 2, 3), list(x.shape), align_corners=False)
        return self.look(nn.functional.grid_sample(x, grid, align_corners=False))


class Chooses(nn.Module):
    """Keeps the rows whose score is above zero: as many as the data has."""

    def __init__(self):
        super().__init__()
        self.score, self.last = nn.Linear(12, 1), nn.Linear(12, 5)

    def forward(self, x):
        kept = x[self.score(x).squeeze(1) > 0]
        return self.last(kept), kept.sum(0)


class Greedy(nn.Module):
    """As many words as an input says, each chosen by the one before (a scripted loop); the last one."""

    def __init__(self):
        super().__init__()
        self.words, self.cell, self.last = nn.Embedding(50, 16), nn.Linear(32, 16), nn.Linear(16, 50)

    def forward(self, state, steps: int):
        word = self.last(state).argmax(1)
        for _ in range(steps):
            state = torch.tanh(self.cell(torch.cat([self.words(word), state], 1)))
            word = self.last(state).argmax(1)
        return word, state


def scripted(build):
    return lambda: torch.jit.script(build())


def masked():
    torch.backends.mha.set_fastpath_enabled(False)
    return Masked()


class Masked(nn.Module):
    """torch's own encoder and decoder layers, with a mask of what is padding."""

    def __init__(self):
        super().__init__()
        self.encode = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2,
                                            enable_nested_tensor=False)
        self.decode = nn.TransformerDecoderLayer(32, 4, 64, batch_first=True, norm_first=True)

    def forward(self, source, target, padding):
        memory = self.encode(source, src_key_padding_mask=padding)
        return self.decode(target, memory, memory_key_padding_mask=padding)


class Boxes(nn.Module):
    """A one-stage detector with its suppression in the graph."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(others.Unit(3, 16, 3, 2), others.Unit(16, 32, 3, 2), nn.Conv2d(32, 9, 1))

    def forward(self, x):
        found = self.inner(x).flatten(2).transpose(1, 2)[0]
        corner = found[:, :2].sigmoid() * 60
        boxes = torch.cat([corner, corner + found[:, 2:4].exp() * 8], 1)
        scores, labels = found[:, 4:].sigmoid().max(1)
        kept = torchvision.ops.batched_nms(boxes, scores, labels, 0.5)[:50]
        return boxes[kept], scores[kept], labels[kept]


def segments(name):
    return lambda: others.normalized(others.Segments(name))


def plain(build):
    return lambda: others.normalized(build())


T = transformers
NETWORKS = {
    "resnet18": vision("resnet18"),
    "mobilenet_v3_small": vision("mobilenet_v3_small"),
    "efficientnet_b0": vision("efficientnet_b0"),
    "shufflenet": vision("shufflenet_v2_x0_5"),
    "squeezenet": vision("squeezenet1_1"),
    "convnext": lambda: torchvision.models.ConvNeXt(
        [torchvision.models.convnext.CNBlockConfig(24, 48, 1), torchvision.models.convnext.CNBlockConfig(48, None, 1)]),
    "swin": lambda: torchvision.models.SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], num_classes=10),
    "vit": lambda: torchvision.models.VisionTransformer(64, 16, 2, 4, 64, 128, num_classes=10),
    "ssdlite": lambda: Detects("ssdlite320_mobilenet_v3_large", num_classes=5),
    "faster_rcnn": lambda: Detects("fasterrcnn_mobilenet_v3_large_320_fpn", num_classes=5, min_size=96, max_size=128),
    "retinanet": lambda: Detects("retinanet_resnet50_fpn", num_classes=5, min_size=96, max_size=128, score_thresh=0.005,
                                 detections_per_img=50),
    "fcos": lambda: Detects("fcos_resnet50_fpn", num_classes=5, min_size=96, max_size=128, score_thresh=0.005),
    "flow": Flow,
    "lraspp": segments("lraspp_mobilenet_v3_large"),
    "deeplab": segments("deeplabv3_mobilenet_v3_large"),
    "r3d": vision("r3d_18"),
    "unet": plain(lambda: zoo.UNet(zoo.by_resizing("bilinear"))),
    "boxes": plain(Boxes),
    "style": plain(others.Style),
    "larger": plain(others.Larger),
    "generator": plain(others.Generator),
    "volumes": plain(others.Volumes),
    "separator": plain(more.Separator),
    "waves": plain(others.Waves),
    "conformer": plain(others.Conformer),
    "points": plain(others.Points),
    "rotary": plain(others.Rotary),
    "mixture": plain(more.MixtureOfExperts),
    "forecaster": plain(more.Forecaster),
    "stereo": plain(more.Stereo),
    "bert": text(T.BertConfig, T.BertModel, ("last_hidden_state", "pooler_output")),
    "bert_plain": text(T.BertConfig, T.BertModel, ("last_hidden_state", "pooler_output"), attn_implementation="eager"),
    "bert_answers": text(T.BertConfig, T.BertForQuestionAnswering, ("start_logits", "end_logits")),
    "deberta": text(T.DebertaV2Config, T.DebertaV2Model, relative_attention=True, pos_att_type=["p2c", "c2p"],
                    position_buckets=16),
    "mpnet": text(T.MPNetConfig, T.MPNetModel),
    "modernbert": text(T.ModernBertConfig, T.ModernBertModel, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                       cls_token_id=1, sep_token_id=2),
    "sentence": Sentence,
    "gpt2": decoder(T.GPT2Config, T.GPT2LMHeadModel, vocab_size=WORDS, n_embd=64, n_layer=2, n_head=4, n_positions=128),
    "llama": decoder(T.LlamaConfig, T.LlamaForCausalLM, vocab_size=WORDS, hidden_size=64, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=2, intermediate_size=128),
    "qwen": decoder(T.Qwen2Config, T.Qwen2ForCausalLM, vocab_size=WORDS, hidden_size=64, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, intermediate_size=128),
    "t5_encoder": of(T.T5Config, T.T5EncoderModel, ("input_ids", "attention_mask"), ("last_hidden_state",),
                     vocab_size=WORDS, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4,
                     attn_implementation="eager"),
    "t5": of(T.T5Config, T.T5ForConditionalGeneration, ("input_ids", "decoder_input_ids"), ("logits",),
             {"use_cache": False}, vocab_size=WORDS, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4,
             decoder_start_token_id=0),
    "whisper_encoder": lambda: First(T.WhisperModel(T.WhisperConfig(
        vocab_size=WORDS, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_source_positions=100,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3)).get_encoder(), ("input_features",),
        ("last_hidden_state",)),
    "whisper": of(T.WhisperConfig, T.WhisperForConditionalGeneration, ("input_features", "decoder_input_ids"),
                  ("logits",), {"use_cache": False}, vocab_size=WORDS, d_model=64, encoder_layers=2, decoder_layers=2,
                  encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128,
                  max_source_positions=100, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3),
    "wav2vec": of(T.Wav2Vec2Config, T.Wav2Vec2ForCTC, ("input_values",), ("logits",), vocab_size=32, hidden_size=64,
                  num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, conv_dim=[32] * 7,
                  num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4),
    "clip": of(T.CLIPConfig, T.CLIPModel, ("input_ids", "pixel_values"), ("logits_per_image", "image_embeds"),
               text_config={"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
                            "intermediate_size": 64, "eos_token_id": 2, "max_position_embeddings": 32},
               vision_config={"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
                              "intermediate_size": 64, "image_size": 32, "patch_size": 8}, projection_dim=16),
    "segformer": of(T.SegformerConfig, T.SegformerForSemanticSegmentation, ("pixel_values",), ("logits",),
                    hidden_sizes=[16, 32, 48, 64], decoder_hidden_size=32, depths=[1, 1, 1, 1]),
    "dinov2": of(T.Dinov2Config, T.Dinov2Model, ("pixel_values",), ("last_hidden_state",), hidden_size=64,
                 num_hidden_layers=2, num_attention_heads=4, image_size=56, patch_size=14),
    "yolos": of(T.YolosConfig, T.YolosForObjectDetection, ("pixel_values",), ("logits", "pred_boxes"), hidden_size=64,
                num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, image_size=[64, 96], patch_size=16,
                num_detection_tokens=10),
    "efficientnet_pooled": of(T.EfficientNetConfig, T.EfficientNetForImageClassification, ("pixel_values",), ("logits",),
                              width_coefficient=0.5, depth_coefficient=0.3, hidden_dim=640),
    "longformer": text(T.LongformerConfig, T.LongformerModel, attention_window=8, max_position_embeddings=128,
                       pad_token_id=0, bos_token_id=1, eos_token_id=2, sep_token_id=2),
    "rt_detr": of(T.RTDetrConfig, T.RTDetrForObjectDetection, ("pixel_values",), ("logits", "pred_boxes"),
                  backbone_config=T.RTDetrResNetConfig(
                      hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1], embedding_size=16,
                      out_features=["stage2", "stage3", "stage4"]),
                  d_model=64, encoder_hidden_dim=64, encoder_ffn_dim=64, encoder_in_channels=[32, 48, 64],
                  feat_strides=[8, 16, 32], num_queries=10, decoder_in_channels=[64, 64, 64], decoder_layers=2,
                  decoder_ffn_dim=128, encoder_attention_heads=4, decoder_attention_heads=4),
    "codec": of(T.EncodecConfig, T.EncodecModel, ("input_values",), ("audio_values",), num_filters=8, hidden_size=32,
                codebook_size=64, codebook_dim=32),
    "vits": of(T.VitsConfig, T.VitsModel, ("input_ids",), ("waveform",), vocab_size=38, hidden_size=32,
               num_hidden_layers=1, num_attention_heads=2, ffn_dim=64, flow_size=32, spectrogram_bins=33,
               upsample_initial_channel=32, upsample_rates=[4, 4], upsample_kernel_sizes=[8, 8],
               prior_encoder_num_flows=1, duration_predictor_num_flows=1, use_stochastic_duration_prediction=False,
               noise_scale=0.0),
    "lstm_tags": lambda: Tags(nn.LSTM),
    "gru_tags": lambda: Tags(nn.GRU),
    "reads": Reads,
    "scatters": Scatters,
    "neighbours": Neighbours,
    "bags": Bags,
    "spectrum": Spectrum,
    "turns": Turns,
    "chooses": Chooses,
    "greedy": scripted(Greedy),
    "masked": masked,
    **torch_kinds.KINDS,
}


def export(target, name, exporter, opset, inputs, dims):
    """Writes the network `name` to `target`.

    `exporter` is `script` (TorchScript, dynamic_axes) or `dynamo` (dynamic_shapes); `inputs` are arrays by name and
    `dims` the names of each input's open axes.
    """
    torch.manual_seed(0)
    model = NETWORKS[name]().eval()
    values = {key: torch.from_numpy(value) for key, value in inputs.items()}
    takes_numbers = isinstance(model, torch.jit.ScriptModule)
    example = tuple(int(value) if value.ndim == 0 and takes_numbers else value for value in values.values())
    open_axes = {key: dims[key] for key in inputs if dims[key]}
    common = {"input_names": list(inputs), "opset_version": opset}
    with torch.no_grad():
        found = model(*example)
        count = len(found) if isinstance(found, tuple) else 1
        common["output_names"] = [f"y{n}" for n in range(count)]
        if exporter == "script":
            torch.onnx.export(model, example, target, dynamo=False, dynamic_axes=open_axes, **common)
        else:
            shapes = tuple(
                {axis: torch.export.Dim.DYNAMIC for axis in open_axes.get(key, {})} or None for key in inputs)
            if any(isinstance(m, (First, Decodes)) for m in [model]):
                shapes = by_parameters(model, shapes)
            torch.onnx.export(model, example, target, dynamo=True, dynamic_shapes=shapes, external_data=False,
                              **common)


def by_parameters(model, shapes):
    """`shapes` as torch wants them where the last parameter of `forward` takes all remaining values."""
    if isinstance(model, First):
        return (shapes,)
    return (*shapes[:2], shapes[2:])
