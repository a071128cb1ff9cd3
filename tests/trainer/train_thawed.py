#!/usr/bin/env python3
"""Parameters that are trained later than others: each has its own count of updates, as in PyTorch, so AdamW's bias
correction and SGD's first buffer begin when its training does. Losses (1e-5), norms (5e-5) and the size of each parameter
(1e-4) are those of torch.optim (tests/data/golden_thawed.json, golden_thawed.py). The counts are in the checkpoint: they
survive resumes, a reshard, and another freezing, and are the same on any number of ranks."""
import json, shutil, struct
from train_lib import cases, check, config, metrics, sizes, SOURCE, state, step_path, tool, train

LOSS, NORM, SIZE = 1e-5, 5e-5, 1e-4
golden = json.load(open(f"{SOURCE}/tests/data/golden_thawed.json"))
folder, thaw, last = f"{SOURCE}/tests/data/golden/llama", golden["thaw"], golden["steps"]


def over(name, run, steps, frozen, **keys):
    return config(model=folder, init=folder, max_steps=steps, train_batch_size=4, train_micro_batch_size_per_gpu=1,
                  data={"type": "safetensors", "path": f"{folder}/golden.safetensors", "sequence_length": 32},
                  gradient_clipping=golden["clip"], optimizer={"type": run["type"], "params": run["params"]},
                  frozen=frozen, scheduler={"type": "constant", "params": {}}, checkpoint={"dir": name},
                  metrics=f"{name}.jsonl", **keys)


def meta(step, name):
    """Returns the checkpoint's JSON."""
    data = state(step, name)
    at, length = struct.unpack("<QQ", data[88:104])
    return json.loads(data[at:at + length])


@cases.shared
def trained():
    for number, run in enumerate(golden["runs"]):
        reference = None
        for ranks in (1, 3):
            name = f"run{number}on{ranks}"
            train(ranks, over(name, run, thaw, golden["frozen"]))
            train(ranks, over(name, run, last, []))
            for line, loss, norm in zip(metrics(f"{name}.jsonl"), run["losses"], run["grad_norms"], strict=True):
                check(abs(line["loss"] / loss - 1) < LOSS, f"{name}: {line}, loss {loss}")
                check(abs(line["grad_norm"] / norm - 1) < NORM, f"{name}: {line}, norm {norm}")
            reference = reference or state(last, name)
            check(state(last, name) == reference, f"{name}: state.h5 differs from one rank's")
        got = sizes(step_path(last, f"run{number}on1"))
        check(got.keys() == run["sizes"].keys(), f"{got.keys()}")
        for tensor, want in run["sizes"].items():
            check(abs(got[tensor] / want - 1) < SIZE, f"run {number}: {tensor} is {got[tensor]}, not {want}")

        # A resume in the middle, on other ranks and from shards, gives the same bytes.
        shutil.copytree(step_path(thaw + 1, f"run{number}on1"), step_path(thaw + 1, f"again{number}"))
        tool("dcp-reshard", f"again{number}", f"shards{number}", "--layout", "sharded", "--world", 2)
        for name, ranks in ((f"again{number}", 2), (f"shards{number}", 3)):
            train(ranks, over(name, run, last, []))
            check(state(last, name) == reference, f"{name}: a resumed run has other bits")


frozen = [name for name in golden["runs"][0]["sizes"]
          if name.startswith(("model.embed", "model.layers.0.")) or name.endswith(".down_proj.weight")]


def test_values_are_those_of_pytorch_also_after_a_resume():
    trained()


def test_a_checkpoint_has_counts_of_what_was_thawed():
    cases.use(trained)
    # A run in which nothing was thawed has no counts.
    found = meta(last, "run0on1")["moments_since"]
    check(found == {name: thaw for name in frozen}, f"{found}")
    check("moments_since" not in meta(thaw, "run0on1"), "counts are stored that differ from none")


def test_freezing_again_resets_the_count():
    cases.use(trained)
    train(2, over("run0on1", golden["runs"][0], last + 1, ["model.embed*"]))
    check(meta(last + 1, "run0on1")["moments_since"] == {n: thaw for n in frozen if "embed" not in n}, "frozen again")
    train(1, over("run0on1", golden["runs"][0], last + 2, []))
    check(meta(last + 2, "run0on1")["moments_since"]["model.embed_tokens.weight"] == last + 1, "thawed again")


cases.main()
