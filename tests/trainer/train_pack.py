#!/usr/bin/env python3
"""data.pack: several records a sample. A run is the same on any number of ranks, in any strategy and through a kill;
the loss of all records is that without packing; evaluations, several sources, plans and resumed runs know of it; and
what is wrong is refused in one line."""
from train_lib import *


def configured(directory, data={}, **more):
    config(**{"max_steps": 6, "train_batch_size": 8, "scheduler": {"type": "constant"},
              "metrics": f"{directory}.jsonl", **more},
           data={"type": "records", "path": "all.safetensors", "sequence_length": 48, "pack": True, **data},
           checkpoint={"dir": directory})


make_records("all.safetensors", lambda i, n: 1)
make_records("ends.safetensors", lambda i, n: i == n - 1)
for ranks in 1, 2, 3, 8:
    configured(f"on-{ranks}")
    said = "".join(train(ranks, "config.json"))
    check("64 records are packed into these samples, and fill 9" in said, said)
    check(state(6, f"on-{ranks}") == state(6, "on-1"), f"{ranks} ranks have saved other bytes")
    check(losses(f"on-{ranks}.jsonl") == losses("on-1.jsonl"), f"{ranks} ranks have other losses")
samples = int(said.split(" samples an epoch")[0].split()[-1])
check(samples < 32, f"64 records are {samples} samples")

configured("killed")
train_killed("killed")
check(state(6, "killed") == state(6, "on-1"), "a run that was killed has saved other bytes")
configured("stage-1")
train(3, "config.json", "zero_optimization.stage=1", "fsdp.activation_checkpointing=true")
check(state(6, "stage-1") == state(6, "on-1"), "another strategy has saved other bytes")

# One sample of all records, in a batch of as many samples as there are: the loss at the start.
loss = {}
for pack in False, True:
    for family, model in ("qwen3", MODEL), ("gpt2", {"model_type": "gpt2", "vocab_size": 259, "n_embd": 32, "n_head": 4,
                                                     "n_layer": 2, "n_positions": 48, "resid_pdrop": 0.0,
                                                     "embd_pdrop": 0.0, "attn_pdrop": 0.0}):
        name = f"whole-{family}-{pack}"
        configured(name, {"pack": pack, "eval_path": "ends.safetensors"}, model=model, max_steps=1, optimizer={"params": {"lr": 3e-3}},
                   train_batch_size=samples if pack else 64, train_micro_batch_size_per_gpu=1)
        train(2, "config.json")
        line = metrics(f"{name}.jsonl")[0]
        loss[family, pack] = line["loss"], line["grad_norm"], line["eval_loss"]
for family in "qwen3", "gpt2":
    for packed, apart, what in zip(loss[family, True], loss[family, False], ("loss", "norm", "loss of an evaluation")):
        off = 1e-5 if what != "loss" else 1e-6  # of a norm; of what an update by signs has made of the rounding
        check(abs(packed - apart) <= off * apart, f"{family}: {what} {packed}, without packing {apart}")

configured("mixed", {"sources": [{"path": "ends.safetensors", "weight": 0.5}]})
train(2, "config.json", "max_steps=2")
one = state(2, "mixed")
configured("mixed-3", {"sources": [{"path": "ends.safetensors", "weight": 0.5}]})
train(3, "config.json", "max_steps=2")
check(state(2, "mixed-3") == one, "three ranks have saved other bytes of two sources")

configured("on-1", {"pack": False})
_, err = train(1, "config.json", "max_steps=7")
check("the checkpoint was saved with data.pack true, the run goes on with false" in err, err)

# Long enough for the numbers of records to show among MiB.
samples_mib = {}
for pack in "true", "false":
    configured("planned")
    plan, _ = train(1, "config.json", f"data.pack={pack}", "data.sequence_length=4096",
                    "model.max_position_embeddings=4096", "--plan", "--ranks", "2")
    samples_mib[pack] = float(plan.split("\n  samples ")[1].split()[0])
check(samples_mib["true"] > samples_mib["false"] > 0, f"{samples_mib}")

configured("refused", {"type": "text"})
for overrides, says in ((["data.path=text"], "data.pack: data.type text has no records to pack; leave data.pack out, or"),
                        (["data.pack=1"], "data.pack: 1 is not true or false"),
                        (["data.type=records", "data.sequence_length=16"], "all.safetensors: record"),
                        (["data.packing=true"], "data.packing: unknown key; did you mean data.pack?")):
    _, err = train(1, "config.json", *overrides, expect=2)
    check(says in err and err.count("\n") == 1 and not os.path.exists("refused"), err)
