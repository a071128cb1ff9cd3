#!/usr/bin/env python3
"""A talker: five steps are PyTorch's; a run is the same on any number of ranks, through a kill and with other ways to
hold and cut it; both losses are told, of evaluations too; what is frozen stays; and what is wrong is refused."""
import fnmatch
from train_lib import *
from recordings import make_recordings

GOLDEN = f"{SOURCE}/tests/data/golden/talker"
with open(f"{GOLDEN}/golden.json") as file:
    WANTED = json.load(file)
TEXT = ["talker.model.text_embedding.*", "talker.text_projection.*"]


def configured(directory, **over):
    data = {"type": "speech", "path": "recordings.safetensors", "sequence_length": 32, "frames": 9,
            **over.pop("data", {})}
    config(**{"model": f"{GOLDEN}/config.json", "max_steps": 4, "scheduler": {"type": "constant", "params": {}}, "frozen": TEXT,
              "data": data, "checkpoint": {"dir": directory}, "metrics": f"{directory}.jsonl", **over})


def lines(name):
    with open(f"{name}.jsonl") as f:
        return [json.loads(line) for line in f]


def near(got, want, what):
    check(abs(got - want) <= 2e-5 * abs(want), f"{what}: {got} instead of {want}")


def differences(a, b):
    done = subprocess.run([f"{BIN}/dcp-inspect", "diff", a, b, "--json", "--all", "--ignore-meta"], capture_output=True,
                          text=True)
    check(done.returncode in (0, 1), done.stderr)
    return json.loads(done.stdout)["tensors"]


def as_pytorch(ranks):
    o = WANTED["optimizer"]
    configured(f"golden-{ranks}", init=GOLDEN, max_steps=5, train_batch_size=3, train_micro_batch_size_per_gpu=1,
               data={"path": f"{GOLDEN}/records.safetensors"}, gradient_clipping=WANTED["clip"],
               optimizer={"params": {key: o[key] for key in ("lr", "betas", "eps", "weight_decay")}})
    train(ranks, "config.json")
    for i, line in enumerate(lines(f"golden-{ranks}")):
        near(line["loss"], WANTED["losses"][i], f"loss of step {i + 1}")
        near(line["losses"]["talker"], WANTED["talker_losses"][i], f"the talker's of step {i + 1}")
        near(line["losses"]["predictor"], WANTED["predictor_losses"][i], f"the predictor's of step {i + 1}")
        near(line["grad_norm"], WANTED["grad_norms"][i], f"norm of step {i + 1}")


as_pytorch(1)
as_pytorch(3)
check(state(5, "golden-1") == state(5, "golden-3"), "three ranks have saved other bytes")

make_recordings("recordings.safetensors", 31)
make_recordings("held-out.safetensors", 5, seed=2)
evaluated = {"data": {"eval_path": "held-out.safetensors"}}
configured("on-1", **evaluated)
train(1, "config.json")
last = lines("on-1")[-1]
losses = last["eval_losses"]
near(last["eval_loss"], losses["talker"] + 0.3 * losses["predictor"], "loss of the evaluation")
for ranks in 2, 3, 5, 8:
    configured(f"on-{ranks}", **evaluated)
    train(ranks, "config.json")
    check(state(4, f"on-{ranks}") == state(4, "on-1"), f"{ranks} ranks have saved other bytes")
    check(lines(f"on-{ranks}")[-1]["eval_losses"] == losses, f"{ranks} ranks have evaluated something else")

ways = {"wrapped": {"fsdp": {"wrap_policy": "size", "min_num_params": 1200}},
        "joined": {"fsdp": {"wrap_policy": "size", "min_num_params": 100000}},
        "again": {"fsdp": {"activation_checkpointing": True}},
        "kept": {"fsdp": {"reshard_after_forward": False}},
        "stage-1": {"zero_optimization": {"stage": 1}}}
for name, over in ways.items():
    configured(name, **over)
    train(3, "config.json")
    check(state(4, name) == state(4, "on-1"), f"{name}: has saved other bytes")

configured("killed")
train_killed("killed")
check(state(4, "killed") == state(4, "on-1"), "a run that was killed has saved other bytes")

# The predictor alone learns: the talker's tables of codes, which both use, with it.
configured("predictor", frozen=["talker.model.layers.*", "talker.model.norm.*", "talker.codec_head.*", *TEXT])
train(2, "config.json")
configured("frozen", frozen=["talker.code_predictor.*", *TEXT])
train(2, "config.json")
for name, stays in ("predictor", "talker.codec_head.weight"), ("frozen", "talker.code_predictor.lm_head.0.weight"):
    status = {t["path"]: t["status"] for t in differences(step_path(1, name), step_path(4, name))}
    check(status[f"/model/{stays}"] == "same", f"{name}: {stays} has changed")
    check(status["/model/talker.model.codec_embedding.weight"] == "changed", f"{name}: the table has not changed")

# What is left to train gets the same gradients, whatever is frozen: one step gives it the same bits.
one = {"max_steps": 1, "gradient_clipping": 0}
configured("whole", frozen=[], **one)
train(1, "config.json")
BUT_ONE_HEAD = ["talker.model.*", "talker.codec_head.*", "talker.text_projection.*", "talker.code_predictor.[ms]*",
                "talker.code_predictor.lm_head.[01].*"]
for i, globs in enumerate((["talker.code_predictor.*"], ["talker.model.*"], ["talker.code_predictor.model.codec*"],
                           ["talker.model.text*", "talker.text_projection.linear_fc1.weight"],
                           ["talker.model.norm.*", "*layers*"], ["*weight"], BUT_ONE_HEAD)):
    configured(f"part-{i}", frozen=globs, **one)
    train(1, "config.json")
    for t in differences(step_path(1, "whole"), step_path(1, f"part-{i}")):
        name = t["path"].removeprefix("/model/")
        stays = any(fnmatch.fnmatchcase(name, glob) for glob in globs)
        check(name == t["path"] or (t["status"] == "changed") == stays, f"{globs}: {name} is {t['status']}")

configured("bf16", bf16={"enabled": True})
train(2, "config.json")
check(lines("bf16")[-1]["loss"] < lines("bf16")[0]["loss"], "in bf16 the loss does not fall")

configured("on-1", data={"frames": 12}, max_steps=5)
_, err = train(1, "config.json")
check("data.frames 9" in err, err)
