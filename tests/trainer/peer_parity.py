#!/usr/bin/env python3
"""Compares dcp-train with transformers on random configurations of all families; run by hand:

    peer_parity.py BUILD [--configs 100] [--seed 1] [--family gpt2]

BUILD is a build folder with its tests built; Python needs torch, transformers and safetensors. Each configuration is
written as transformers writes it, or in older spellings, with random weights. Five AdamW steps on one batch must give
transformers' losses (1e-5), gradient norms (1e-3), gradients of the first step (2e-5 of a tensor's largest value) and
parameters (4e-3), on 1 to 4 ranks, and transformers must load the export of the last step.

Rounding alone moves some of these runs further than that. So the same is computed in fp64, and if a limit is exceeded,
dcp-train must be no further from fp64 than four times transformers' own distance, or twice its largest distance with
starts that are moved by half a unit in the last place (8 draws). Prints how many such configurations there are, and
the geometric mean of dcp-train's distance from fp64 divided by transformers'."""
import argparse, collections, copy, json, math, os, pathlib, random, re, shutil, subprocess, tempfile

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TQDM_DISABLE="1",
                  OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
import torch
from safetensors.torch import load_file, save_file
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM, ViTConfig, ViTForImageClassification)

STEPS, CLIP = 5, 1.0
WHAT, LIMITS = ("losses", "norms", "gradients", "parameters"), (1e-5, 1e-3, 2e-5, 4e-3)
ADAMW = {"lr": 0.01, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
choose = random.choice
activations = ["gelu", "gelu_new", "relu", "silu", "gelu_pytorch_tanh", "gelu_fast"]


def heads():
    """Returns the numbers of heads and of key heads, and their dimension."""
    kv = choose([1, 1, 2, 3, 4])
    return kv * choose([1, 2, 3]), kv, choose([2, 4, 6, 8, 14, 16, 32])


def gpt2():
    n, _, dim = heads()
    return GPT2LMHeadModel, GPT2Config(
        vocab_size=choose([50, 97, 257, 1000]), n_embd=n * dim, n_head=n, n_layer=choose([1, 2, 3, 5]),
        n_positions=choose([32, 40, 100]), n_inner=choose([None, 33, 64]), resid_pdrop=0, attn_pdrop=0,
        embd_pdrop=0, activation_function=choose(activations),
        layer_norm_epsilon=choose([1e-5, 1e-6, 1e-3]), tie_word_embeddings=choose([True, True, False]))


def rope():
    """Returns rotary positions with one of the scalings, which slows some pairs down even within a few tokens."""
    theta = choose([10000.0, 500000.0, 1e6, 100.0])
    factor, first = choose([1.0, 2.0, 4.5, 32.0]), choose([8, 16, 32, 64])
    yarn = {"factor": factor, "original_max_position_embeddings": first}
    if choose([True, False]):
        yarn |= {"beta_fast": choose([8, 32.0]), "beta_slow": choose([1.0, 2]), "truncate": choose([True, False])}
    if choose([True, False]):
        yarn |= choose([{"attention_factor": 1.25}, {"mscale": 0.707, "mscale_all_dim": 1.0}, {"mscale": 0.5}])
    return {"rope_theta": theta, **choose([
        {"rope_type": "default"}, {"rope_type": "linear", "factor": factor}, {"rope_type": "yarn", **yarn},
        {"rope_type": "llama3", "factor": factor, "low_freq_factor": choose([0.5, 1.0]),
         "high_freq_factor": choose([2.0, 4.0]), "original_max_position_embeddings": first}])}


def decoder(kind, make, **more):
    n, kv, dim = heads()
    hidden = n * choose([4, 8, 10, 16])
    head_dim = {"head_dim": dim} if kind is Qwen3ForCausalLM or hidden // n % 2 else choose([{}, {"head_dim": dim}])
    layers = choose([1, 2, 3, 4])
    if more.get("layer_types"):
        more["layer_types"] = random.choices(["full_attention", "sliding_attention"], k=layers)
    return kind, make(
        vocab_size=choose([50, 97, 256, 1000]), hidden_size=hidden, intermediate_size=choose([24, 50, 112]),
        num_hidden_layers=layers, num_attention_heads=n, num_key_value_heads=kv,
        max_position_embeddings=choose([32, 64]), rms_norm_eps=choose([1e-5, 1e-6, 1e-3]),
        rope_parameters=rope(),
        attention_bias=choose([True, False]), tie_word_embeddings=choose([True, False]),
        hidden_act=choose(["silu", "silu", "gelu", "relu", "gelu_pytorch_tanh"]), **head_dim, **more)


def llama():
    return decoder(LlamaForCausalLM, LlamaConfig, mlp_bias=choose([True, False]))


def mistral():
    return decoder(MistralForCausalLM, MistralConfig, sliding_window=choose([None, 1, 3, 8, 15, 64]))


def windows():
    """Returns windows for Qwen: none, those of some layers, or those in layer_types, which decoder makes of True."""
    return choose([{}, {}, {"use_sliding_window": True, "sliding_window": choose([1, 4, 9, 64]),
                            "max_window_layers": choose([0, 1, 2, 28]), "layer_types": choose([None, True])}])


def qwen2():
    return decoder(Qwen2ForCausalLM, Qwen2Config, **windows())


def qwen3():
    return decoder(Qwen3ForCausalLM, Qwen3Config, **windows())


def vit():
    n, _, dim = heads()
    patch = choose([2, 3, 4, [4, 2], [2, 5]])
    image = choose([8, 12, 15, 16, [8, 12], [16, 10]])
    return ViTForImageClassification, ViTConfig(
        hidden_size=n * dim, num_attention_heads=n, num_hidden_layers=choose([1, 2, 3]),
        intermediate_size=choose([20, 33, 80]), image_size=image, patch_size=patch,
        num_channels=choose([1, 3, 4]), qkv_bias=choose([True, False]), hidden_act=choose(activations),
        layer_norm_eps=choose([1e-12, 1e-6, 1e-5]), num_labels=choose([2, 3, 10, 37]))


class Mlp(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        sizes = config["sizes"]
        self.layers = torch.nn.ModuleList(map(torch.nn.Linear, sizes, sizes[1:]))
        act = {"relu": torch.relu, "silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu}
        self.act = act[config.get("activation", "relu")]

    def forward(self, pixel_values, labels):
        x = pixel_values.flatten(1)
        for layer in self.layers[:-1]:
            x = self.act(layer(x))
        x = self.layers[-1](x)
        out = collections.namedtuple("Out", "loss logits")
        return out(torch.nn.functional.cross_entropy(x, labels), x)

    def save_pretrained(self, folder):
        os.makedirs(folder)
        save_file(self.state_dict(), f"{folder}/model.safetensors")
        json.dump(self.config, open(f"{folder}/config.json", "w"))


def mlp():
    config = {"model_type": "mlp", "sizes": [choose([12, 48, 27])] + random.choices([5, 16, 33, 64], k=choose(
        [0, 1, 2, 4])) + [choose([2, 3, 10])]}
    if choose([True, False]):
        config["activation"] = choose(["relu", "silu", "gelu"])
    return Mlp, config


def make_batch(model, rows):
    c = model.config
    if isinstance(c, dict):
        return {"pixel_values": torch.randn(rows, c["sizes"][0]),
                "labels": torch.randint(c["sizes"][-1], (rows,))}
    if isinstance(c, ViTConfig):
        pair = c.image_size if isinstance(c.image_size, (list, tuple)) else [c.image_size] * 2
        return {"pixel_values": torch.randn(rows, c.num_channels, *pair),
                "labels": torch.randint(c.num_labels, (rows,))}
    length = choose([2, 7, 16, 32])
    ids = torch.randint(c.vocab_size, (rows, length))
    labels = ids.clone()
    labels[torch.rand(labels.shape) < 0.2] = -100
    labels[0, 1] = ids[0, 1]
    return {"input_ids": ids, "labels": labels}


def tensors_as_saved(model, values, prefix):
    """Returns the parameters' values under the names that transformers gives them in files."""
    kept = {name: p.detach().clone() for name, p in model.named_parameters()}
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(values[name])
        model.save_pretrained(f"{folder}/m")
        saved = load_file(f"{folder}/m/model.safetensors")
        for name, p in model.named_parameters():
            p.copy_(kept[name])
    return {prefix + name: t for name, t in saved.items()}


def reference(model, batch, golden):
    """Computes five steps; golden gets the tensors. Returns losses and norms."""
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    losses, norms, batch = [], [], dict(batch)
    if "pixel_values" in batch:
        batch["pixel_values"] = batch["pixel_values"].to(next(model.parameters()).dtype)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        if step == 0:
            grads = {n: p.grad for n, p in model.named_parameters()}
            golden.update(tensors_as_saved(model, grads, "grad."))
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        losses.append(loss.item())
        optimizer.step()
    golden.update(tensors_as_saved(model, dict(model.named_parameters()), "step5."))
    return losses, norms


def respell(folder):
    """Sometimes makes it an older file: other spellings of keys, names without the base's prefix."""
    config = json.load(open(f"{folder}/config.json"))
    tensors = load_file(f"{folder}/model.safetensors")
    kind, tied = config["model_type"], config.get("tie_word_embeddings")
    if kind in ("llama", "mistral", "qwen2", "qwen3") and choose([True, False]):
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        kind_of_rope = rope.pop("rope_type")
        config["rope_scaling"] = None if kind_of_rope == "default" else {
            choose(["type", "rope_type"]): kind_of_rope, **rope}
    if kind == "gpt2" and choose([True, False]):
        for new, old in (("hidden_size", "n_embd"), ("num_hidden_layers", "n_layer"),
                         ("num_attention_heads", "n_head"), ("max_position_embeddings", "n_positions")):
            config[new] = config.pop(old)
    if kind == "vit" and choose([True, False]):
        config["num_labels"] = len(config.pop("id2label", [0, 1]))
        config.pop("label2id", None)
    prefix = {"gpt2": "transformer.", "llama": "model.", "mistral": "model.", "qwen2": "model.", "qwen3": "model."}.get(kind)
    if prefix and tied and choose([True, False]):
        tensors = {name.removeprefix(prefix): t for name, t in tensors.items()}
        if kind == "gpt2":
            tensors["h.0.attn.bias"] = torch.ones(1, 1, 32, 32)
            tensors["h.0.attn.masked_bias"] = torch.tensor(-1e4)
    json.dump(config, open(f"{folder}/config.json", "w"))
    save_file(tensors, f"{folder}/model.safetensors", {"format": "pt"})


def run(*args):
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{args}: exit {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def train(build, folder, batch, rows):
    ranks, micro = choose([1, 2, 3, 4]), choose([m for m in (1, 2, 4) if rows % m == 0])
    config = {"model": f"{folder}/m", "init": f"{folder}/m", "max_steps": STEPS, "seed": 1,
              "data": {"type": "safetensors", "path": f"{folder}/batch.safetensors",
                       "sequence_length": batch["input_ids"].shape[1] if "input_ids" in batch else 9},
              "train_batch_size": rows, "train_micro_batch_size_per_gpu": micro,
              "gradient_clipping": CLIP, "optimizer": {"type": "AdamW", "params": ADAMW},
              "scheduler": {"type": "constant", "params": {}}, "metrics": f"{folder}/metrics.jsonl",
              "checkpoint": {"dir": f"{folder}/ckpt", "every": 1, "keep": 0}}
    json.dump(config, open(f"{folder}/train.json", "w"))
    run("mpirun", "--oversubscribe", "-n", ranks, build / "bin/dcp-train", f"{folder}/train.json")
    return [json.loads(line) for line in open(f"{folder}/metrics.jsonl")]


def compare(build, folder, golden, lines):
    """Returns the largest deviations from the golden losses, norms, gradients and parameters."""
    tensors, losses, norms = golden
    path = f"{folder}/golden.safetensors"
    save_file({n: t.contiguous().float().clone() if t.is_floating_point() else t
               for n, t in tensors.items()}, path)
    scale = 1 / (0.1 * min(1, CLIP / (lines[0]["grad_norm"] + 1e-6)))
    found = [max(abs(line[key] / value - 1) for line, value in zip(lines, values, strict=True))
             for key, values in (("loss", losses), ("grad_norm", norms))]
    for what, step, by in (("gradients", 1, scale), ("parameters", 5, 1)):
        tool = [build / "tests/bin/train_compare", what, f"{folder}/ckpt/step-{step:08d}", path, by]
        done = subprocess.run([str(a) for a in tool], capture_output=True, text=True)
        found.append(float(re.search(r"largest deviation (\S+)", done.stdout)[1]))
    return found


def is_key_bias(name, t):
    """Returns true for entries that are noise, as in train_compare."""
    mask = torch.zeros_like(t, dtype=torch.bool)
    if name.endswith(".attention.key.bias"):
        mask[:] = True
    if name.endswith(".attn.c_attn.bias"):
        mask[len(t) // 3:len(t) // 3 * 2] = True
    return mask


def between(one, other):
    """Returns the same deviations between two golden computations."""
    found = [max(abs(x / y - 1) for x, y in zip(a, b)) for a, b in zip(one[1:], other[1:])]
    for prefix in ("grad.", "step5."):
        off = [0.0]
        for name, t in one[0].items():
            if name.startswith(prefix):
                d = (t.double() - other[0][name].double()).abs().masked_fill(is_key_bias(name, t), 0)
                off.append((d.max() / t.abs().max()).item() if d.max() > 0 else 0.0)
        found.append(max(off))
    return found


def check_export(build, folder, kind):
    """Checks that transformers uses every tensor of the export and misses none."""
    run(build / "bin/dcp-export", f"{folder}/ckpt", f"{folder}/export")
    if kind is Mlp:
        return
    _, info = kind.from_pretrained(f"{folder}/export", output_loading_info=True)
    wrong = {k: v for k, v in info.items() if v}
    assert not wrong, f"export: {wrong}"


def drop_noise(golden, exact):
    """Leaves out tensors whose gradient is zero except for rounding: those of queries and keys if no position that
    counts attends to a second one."""
    most = max(t.abs().max() for name, t in exact.items() if name.startswith("grad."))
    for name, t in list(exact.items()):
        if name.startswith("grad.") and t.abs().max() < 1e-7 * most:
            for d in (golden, exact):
                del d[name], d["step5." + name.removeprefix("grad.")]


def farthest(start, batch, exact):
    """Returns transformers' largest distances from fp64 with starts that differ in the last place."""
    found = []
    for _ in range(8):
        model, golden = copy.deepcopy(start), {}
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 + 2.0**-24 * torch.randn_like(p))
        losses, norms = reference(model, batch, golden)
        kept = {name: golden[name] for name in exact[0]}
        found.append(between(exact, (kept, losses, norms)))
    return [max(each) for each in zip(*found)]


def check(build, folder, family):
    kind, config = family()
    model = kind(config).float()
    with torch.no_grad():  # biases and norms as after some training
        for p in model.parameters():
            p.add_((0.01 if p.ndim > 1 else 0.1) * torch.randn_like(p))
    rows = choose([2, 4, 6])
    batch = make_batch(model, rows)
    model.save_pretrained(f"{folder}/m")
    respell(f"{folder}/m")
    start = copy.deepcopy(model)
    golden, exact = ({}, None, None), ({}, None, None)
    golden = (golden[0], *reference(copy.deepcopy(model), batch, golden[0]))
    exact = (exact[0], *reference(model.double(), batch, exact[0]))
    drop_noise(golden[0], exact[0])
    save_file(batch, f"{folder}/batch.safetensors")
    lines = train(build, folder, batch, rows)
    ours, to_exact = (compare(build, folder, g, lines) for g in (golden, exact))
    theirs = between(exact, golden)
    beyond = [o > limit for o, limit in zip(ours, LIMITS)]
    is_far = [over and far >= 4 * peer for over, far, peer in zip(beyond, to_exact, theirs)]
    most = farthest(start, batch, exact) if any(is_far) else theirs
    for what, over, far, peer, other in zip(WHAT, beyond, to_exact, theirs, most):
        assert not over or far < 4 * peer or far < 2 * other, \
            f"{what}: {ours}, to fp64 {to_exact}, theirs {theirs}, at most {most}"
        if over:
            print(f"{family.__name__}: {what} {far:.2g} from fp64, transformers {peer:.2g}", flush=True)
    check_export(build, folder, kind)
    ratios = [math.log(far / peer) if far > 0 and peer > 0 else 0 for far, peer in zip(to_exact, theirs)]
    return ours, any(beyond), ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--configs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family", choices=["gpt2", "llama", "mistral", "qwen2", "qwen3", "vit", "mlp"])
    a = parser.parse_args()
    families = [f for f in (gpt2, llama, mistral, qwen2, qwen3, vit, mlp) if a.family in (None, f.__name__)]
    torch.set_num_threads(1)
    worst, ratios = (collections.defaultdict(lambda: [0.0] * 4) for _ in range(2))
    runs, failed, excused = collections.Counter(), 0, 0
    for i in range(a.configs):
        seed, family = a.seed * 100000 + i, families[i % len(families)]
        random.seed(seed)
        torch.manual_seed(seed)
        folder = tempfile.mkdtemp(prefix="peer.")
        try:
            name = family.__name__
            found, beyond, ratio = check(a.build, folder, family)
            excused += beyond
            runs[name] += 1
            ratios[name] = [a + b for a, b in zip(ratios[name], ratio)]
            if not beyond:
                worst[name] = list(map(max, worst[name], found))
        except AssertionError as why:
            failed += 1
            config = open(f"{folder}/m/config.json").read()
            print(f"FAILED: {family.__name__} {seed} (--seed {a.seed}, number {i}): {why}\n{config}")
        shutil.rmtree(folder)
    for name, found in worst.items():
        shares = [math.exp(ratio / runs[name]) for ratio in ratios[name]]
        print(f"{name}, {runs[name]} runs:", ", ".join(
            f"{what} {value:.2g} ({share:.2f})" for what, value, share in zip(WHAT, found, shares)))
    print(f"{a.configs} configurations, {failed} failed, {excused} passed a limit as rounding does")
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
