"""A text-to-speech talker with its code predictor (the 12 Hz family of Qwen3-TTS) in PyTorch, written from the model's
description. It computes the golden values, with which tests compare dcp-train's results. Its input is one record at a
time; its output is the logits and the losses of talker and predictor. Parameters are named as in the published folder;
models are made from that folder's config.json.

A record of t text ids (a header of 3, then the text) and T frames of codes has t + T + 7 positions:

    position         0-2        3        4          5          6        7    8...t+4   t+5  t+6  t+7+j
    text channel     header     pad      pad        pad        pad      bos  the text  eos  pad  pad
    codec channel    nothing    nothink  think_bos  think_eos  speaker  pad  pad       pad  bos  frame j

The input at a position is the sum of both channels. The ids of the text channel are embedded and then projected. A
frame is the sum of its codes' embeddings: of code 0 in the talker's table, and of the other codes in the predictor's
tables. Position t + 6 + j predicts code 0 of frame j, and the last position predicts the end. For each frame, the
predictor sees the talker's output at the previous position, then the embeddings of the frame's codes except the last;
its position i predicts code i."""
import json, os

import torch, torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

RESIDUAL_WEIGHT = 0.3  # weight of the predictor's loss relative to the talker's
HEADER = 3             # text ids before the codec channel begins


def linear(inner, outer, bias=False):
    return nn.Linear(inner, outer, bias=bias)


class Norm(nn.Module):
    """RMSNorm, in fp32 or a wider type."""

    def __init__(self, dim, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        wide = x.float() if x.dtype == torch.bfloat16 else x
        return self.weight * wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.dim, self.theta = c["head_dim"], c["rope_theta"]
        q, kv = c["num_attention_heads"] * self.dim, c["num_key_value_heads"] * self.dim
        self.q_proj, self.k_proj = linear(c["hidden_size"], q), linear(c["hidden_size"], kv)
        self.v_proj, self.o_proj = linear(c["hidden_size"], kv), linear(q, c["hidden_size"])
        self.q_norm, self.k_norm = Norm(self.dim, c["rms_norm_eps"]), Norm(self.dim, c["rms_norm_eps"])

    def heads(self, x):
        """[batch, heads, n, dim]"""
        return x.unflatten(-1, (-1, self.dim)).transpose(1, 2)

    def turn(self, x):
        """Rotary positions: rotates element i of a head's first half with element i of its second half."""
        half, n = self.dim // 2, x.shape[-2]
        frequency = self.theta ** -(torch.arange(half, dtype=x.dtype) / half)
        angle = torch.arange(n, dtype=x.dtype)[:, None] * frequency
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)

    def forward(self, x):
        q = self.turn(self.q_norm(self.heads(self.q_proj(x))))
        k = self.turn(self.k_norm(self.heads(self.k_proj(x))))
        v = self.heads(self.v_proj(x)).to(q.dtype)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(out.transpose(1, 2).flatten(-2))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        hidden, inner = c["hidden_size"], c["intermediate_size"]
        self.gate_proj, self.up_proj = linear(hidden, inner), linear(hidden, inner)
        self.down_proj = linear(inner, hidden)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self_attn, self.mlp = Attention(c), Mlp(c)
        self.input_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.post_attention_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """The layers and the last norm, for x [batch, n, hidden]. Holds the embeddings, without using them, so that they
    have their published names."""

    def __init__(self, c, **embeddings):
        super().__init__()
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"], c["rms_norm_eps"])
        for name, embedding in embeddings.items():
            setattr(self, name, embedding)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Predictor(nn.Module):
    def __init__(self, c, talker):
        super().__init__()
        hidden, others = c["hidden_size"], c["num_code_groups"] - 1
        self.model = Decoder(c, codec_embedding=nn.ModuleList(
            nn.Embedding(c["vocab_size"], talker["hidden_size"]) for _ in range(others)))
        self.lm_head = nn.ModuleList(linear(hidden, c["vocab_size"]) for _ in range(others))
        same = hidden == talker["hidden_size"]
        self.small_to_mtp_projection = nn.Identity() if same else linear(talker["hidden_size"], hidden, bias=True)

    def embedded(self, codes):
        """The embeddings [frames, n, the talker's hidden] of codes 1 ... n of each frame, which are in `codes`."""
        return torch.stack([self.model.codec_embedding[i](codes[:, i]) for i in range(codes.shape[1])], 1)

    def forward(self, x):
        """x [frames, codes, the talker's hidden]; logits [frames, codes - 1, vocabulary]."""
        out = self.model(self.small_to_mtp_projection(x))
        return torch.stack([head(out[:, i + 1]) for i, head in enumerate(self.lm_head)], 1)

    def following(self, x):
        """Logits [frames, vocabulary] of the code that follows the codes in x [frames, 1 + codes, the talker's
        hidden]."""
        out = self.model(self.small_to_mtp_projection(x))[:, -1]
        return self.lm_head[x.shape[1] - 2](out)


class Projection(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear_fc1, self.linear_fc2 = linear(inner, inner, bias=True), linear(inner, outer, bias=True)

    def forward(self, x):
        return self.linear_fc2(F.silu(self.linear_fc1(x)))


class Talker(nn.Module):
    def __init__(self, c):
        super().__init__()
        hidden, text = c["hidden_size"], c["text_hidden_size"]
        self.model = Decoder(c, codec_embedding=nn.Embedding(c["vocab_size"], hidden),
                             text_embedding=nn.Embedding(c["text_vocab_size"], text))
        self.text_projection = Projection(text, hidden)
        self.codec_head = linear(hidden, c["vocab_size"])
        self.code_predictor = Predictor(c["code_predictor_config"], c)


class Model(nn.Module):
    """The model that a config.json describes, without the speaker encoder, which is not trained: only the scripts that
    make records use it."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.talker = Talker(config["talker_config"])

    def text_channel(self, text, frames):
        c = self.config
        pad, bos, eos = (torch.tensor([c[f"tts_{name}_token_id"]]) for name in ("pad", "bos", "eos"))
        return torch.cat([text[:HEADER], pad.repeat(4), bos, text[HEADER:], eos, pad.repeat(1 + frames)])

    def embed(self, text, codes, speaker):
        """x [positions, hidden] for a record: text [t], codes [T, groups], speaker [hidden]."""
        c, talker = self.config["talker_config"], self.talker
        x = talker.text_projection(talker.model.text_embedding(self.text_channel(text, len(codes))))
        table = talker.model.codec_embedding
        start = table(torch.tensor([c[f"codec_{name}_id"] for name in ("nothink", "think_bos", "think_eos")]))
        pads = table(torch.tensor([c["codec_pad_id"]] * (len(text) - 1) + [c["codec_bos_id"]]))
        frames = table(codes[:, 0]) + talker.code_predictor.embedded(codes[:, 1:]).sum(1)
        codec = torch.cat([start, speaker[None].to(pads), pads, frames])
        return x + F.pad(codec, (0, 0, HEADER, 0))

    def forward(self, text, codes, speaker):
        """Logits [positions, vocabulary] and [frames, groups - 1, vocabulary of the predictor]."""
        talker, first = self.talker, len(text) + 6
        hidden = talker.model(self.embed(text, codes, speaker)[None])[0]
        before = hidden[first:first + len(codes)]
        known = [before[:, None], talker.model.codec_embedding(codes[:, :1]),
                 talker.code_predictor.embedded(codes[:, 1:-1])]
        return talker.codec_head(hidden), talker.code_predictor(torch.cat(known, 1))

    def losses(self, records):
        """The talker's and the predictor's losses, each the mean over its own targets in all records; and all
        logits."""
        end = torch.tensor([self.config["talker_config"]["codec_eos_token_id"]])
        logits, residual = zip(*(self(*record) for record in records))
        predicts = torch.cat([rows[len(text) + 6:] for rows, (text, _, _) in zip(logits, records)])
        wanted = torch.cat([torch.cat([codes[:, 0], end]) for _, codes, _ in records])
        others = torch.cat([codes[:, 1:] for _, codes, _ in records])
        logits, residual = torch.cat(logits), torch.cat(residual)
        return (F.cross_entropy(widened(predicts), wanted),
                F.cross_entropy(widened(residual).flatten(0, 1), others.flatten()), logits, residual)


@torch.no_grad()
def speak(model, text, speaker, most):
    """Codes [frames, groups], each the most likely one after the previous ones. Stops where the talker predicts the
    end, but at the latest after `most` frames."""
    config, talker = model.config["talker_config"], model.talker
    codes = torch.empty(0, config["num_code_groups"], dtype=torch.long)
    while len(codes) < most:
        hidden = talker.model(model.embed(text, codes, speaker)[None])[:, -1:]
        frame = talker.codec_head(hidden)[:, 0].argmax(-1, keepdim=True)
        if frame.item() == config["codec_eos_token_id"]:
            break
        known = torch.cat([hidden, talker.model.codec_embedding(frame)], 1)
        while frame.shape[1] < codes.shape[1]:
            frame = torch.cat([frame, talker.code_predictor.following(known).argmax(-1, keepdim=True)], 1)
            known = torch.cat([known[:, :2], talker.code_predictor.embedded(frame[:, 1:])], 1)
        codes = torch.cat([codes, frame])
    return codes


def widened(x):
    return x.float() if x.dtype == torch.bfloat16 else x


def total(talker, predictor):
    return talker + RESIDUAL_WEIGHT * predictor


def read_folder(folder, dtype=torch.float32):
    """The model of a published folder; ignores the tensors of a speaker encoder."""
    with open(f"{folder}/config.json") as f:
        model = Model(json.load(f)).to(dtype)
    files = sorted(name for name in os.listdir(folder) if name.endswith(".safetensors"))
    found = {k: v for name in files for k, v in load_file(f"{folder}/{name}").items() if k.startswith("talker.")}
    model.load_state_dict(found)
    return model


def write_folder(model, folder, speaker=None, row=3000, vector=None):
    """Writes config and weights. If a speaker's name is given, the speaker's vector becomes a row of the talker's
    table, and the folder has fixed voices, and thus no speaker encoder."""
    config = json.loads(json.dumps(model.config))
    tensors = {name: p.detach().clone().contiguous() for name, p in model.named_parameters()}
    if speaker:
        config["tts_model_type"] = "custom_voice"
        config["talker_config"] |= {"spk_id": {speaker: row}, "spk_is_dialect": {speaker: False}}
        tensors["talker.model.codec_embedding.weight"][row] = vector
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/config.json", "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")
    save_file(tensors, f"{folder}/model.safetensors", metadata={"format": "pt"})


def read_records(path):
    """Text, codes and speaker of each record in a file that examples/talker/to_records.py describes."""
    t = load_file(path)
    ids, codes = t["text_ids"].long(), t["codes"].long()
    for i in range(len(t["speaker_ids"])):
        text, frames = (slice(*t[name][i:i + 2].tolist()) for name in ("text_starts", "frame_starts"))
        yield ids[text], codes[frames], t["speakers"][t["speaker_ids"][i].long()]


def parameters(config):
    """The number of parameters, with and without the predictor; allocates no memory for them."""
    with torch.device("meta"):
        model = Model(config)
    counts = {name: p.numel() for name, p in model.named_parameters()}
    return sum(counts.values()), sum(n for name, n in counts.items() if ".code_predictor." not in name)
