"""Qwen3 in plain PyTorch, with transformers' names and results, for use if transformers is missing.

model = Qwen3(json.load(file))
model(input_ids=tokens, labels=tokens).loss     # the mean loss of predicting each next token"""
import types

import torch
from torch import nn
from torch.nn import functional


class Norm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


def rotated(x, cos, sin):
    """x: [batch, heads, sequence, head_dim]; cos, sin: [sequence, head_dim]."""
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        hidden, self.dim = c["hidden_size"], c["head_dim"]
        q, kv = c["num_attention_heads"] * self.dim, c["num_key_value_heads"] * self.dim
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(hidden, n, bias=False) for n in (q, kv, kv))
        self.o_proj = nn.Linear(q, hidden, bias=False)
        self.q_norm, self.k_norm = (Norm(self.dim, c["rms_norm_eps"]) for _ in range(2))

    def forward(self, x, cos, sin):
        q, k, v = (y.unflatten(-1, (-1, self.dim)) for y in (self.q_proj(x), self.k_proj(x), self.v_proj(x)))
        q = rotated(self.q_norm(q).transpose(1, 2), cos, sin)
        k = rotated(self.k_norm(k).transpose(1, 2), cos, sin)
        out = functional.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True, enable_gqa=True)
        return self.o_proj(out.transpose(1, 2).flatten(-2))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        hidden, inner = c["hidden_size"], c["intermediate_size"]
        self.gate_proj, self.up_proj = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self_attn, self.mlp = Attention(c), Mlp(c)
        self.input_layernorm, self.post_attention_layernorm = (
            Norm(c["hidden_size"], c["rms_norm_eps"]) for _ in range(2))

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.dim, self.theta = c["head_dim"], c["rope_theta"]

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        powers = torch.arange(0, self.dim, 2, device=x.device).float() / self.dim
        angles = torch.outer(torch.arange(tokens.shape[1], device=x.device).float(), self.theta**-powers)
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


class Qwen3(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = types.SimpleNamespace(**config)
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)
        if config["tie_word_embeddings"]:
            self.lm_head.weight = self.model.embed_tokens.weight
        for weight in (p for p in self.parameters() if p.dim() == 2):
            nn.init.normal_(weight, std=0.02)

    def forward(self, input_ids, labels):
        logits = self.lm_head(self.model(input_ids)).float()
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return types.SimpleNamespace(loss=loss, logits=logits)
