#!/usr/bin/env python3
"""A talker: five steps are PyTorch's; a run is the same on any number of ranks, after a kill, and with other ways to
shard it; both losses are reported, also of evaluations; frozen parts stay; and what is wrong is refused."""
import fnmatch, json, subprocess
from recordings import make_recordings
from train_lib import BIN, cases, check, config, SOURCE, state, step_path, train, train_killed

GOLDEN = f"{SOURCE}/tests/data/golden/talker"
with open(f"{GOLDEN}/golden.json") as file:
    WANTED = json.load(file)
TEXT = ["talker.model.text_embedding.*", "talker.text_projection.*"]


def configured(directory, **over):
    data = {"type": "speech", "path": "recordings.safetensors", "sequence_length": 32, "frames": 9,
            **over.pop("data", {})}
    config(**{"model": f"{GOLDEN}/config.json", "max_steps": 4, "scheduler": {"type": "constant", "params": {}},
              "frozen": TEXT,
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


def test_five_steps_are_those_of_pytorch():
    as_pytorch(1)
    as_pytorch(3)
    check(state(5, "golden-1") == state(5, "golden-3"), "three ranks have saved other bytes")


evaluated = {"data": {"eval_path": "held-out.safetensors"}}


@cases.shared
def one_rank():
    make_recordings("recordings.safetensors", 31)
    make_recordings("held-out.safetensors", 5, seed=2)
    configured("on-1", **evaluated)
    train(1, "config.json")


def test_the_loss_of_an_evaluation_is_the_sum_of_both():
    cases.use(one_rank)
    last = lines("on-1")[-1]
    losses = last["eval_losses"]
    near(last["eval_loss"], losses["talker"] + 0.3 * losses["predictor"], "loss of the evaluation")


ways = {"wrapped": {"fsdp": {"wrap_policy": "size", "min_num_params": 1200}},
        "joined": {"fsdp": {"wrap_policy": "size", "min_num_params": 100000}},
        "again": {"fsdp": {"activation_checkpointing": True}},
        "kept": {"fsdp": {"reshard_after_forward": False}},
        "stage-1": {"zero_optimization": {"stage": 1}}}


def test_any_number_of_ranks_gives_the_same():
    cases.use(one_rank)
    losses = lines("on-1")[-1]["eval_losses"]
    for ranks in 2, 3, 5, 8:
        with cases.part(f"{ranks}"):
            configured(f"on-{ranks}", **evaluated)
            train(ranks, "config.json")
            check(state(4, f"on-{ranks}") == state(4, "on-1"), f"{ranks} ranks have saved other bytes")
            check(lines(f"on-{ranks}")[-1]["eval_losses"] == losses, f"{ranks} ranks have evaluated something else")


def test_other_ways_to_shard_give_the_same():
    cases.use(one_rank)
    for name, over in ways.items():
        with cases.part(f"{name}"):
            configured(name, **over)
            train(3, "config.json")
            check(state(4, name) == state(4, "on-1"), f"{name}: has saved other bytes")


def test_a_killed_run_gives_the_same():
    cases.use(one_rank)
    configured("killed")
    train_killed("killed")
    check(state(4, "killed") == state(4, "on-1"), "a run that was killed has saved other bytes")


def test_frozen_parts_stay():
    cases.use(one_rank)
    # The talker's tables of codes are trained in both runs, since both parts use them.
    configured("predictor", frozen=["talker.model.layers.*", "talker.model.norm.*", "talker.codec_head.*", *TEXT])
    train(2, "config.json")
    configured("frozen", frozen=["talker.code_predictor.*", *TEXT])
    train(2, "config.json")
    for name, stays in ("predictor", "talker.codec_head.weight"), ("frozen", "talker.code_predictor.lm_head.0.weight"):
        status = {t["path"]: t["status"] for t in differences(step_path(1, name), step_path(4, name))}
        check(status[f"/model/{stays}"] == "same", f"{name}: {stays} has changed")
        check(status["/model/talker.model.codec_embedding.weight"] == "changed", f"{name}: the table has not changed")


def test_freezing_does_not_change_the_gradients_of_the_rest():
    cases.use(one_rank)
    # So one step gives the rest the same bits.
    one = {"max_steps": 1, "gradient_clipping": 0}
    configured("whole", frozen=[], **one)
    train(1, "config.json")
    BUT_ONE_HEAD = ["talker.model.*", "talker.codec_head.*", "talker.text_projection.*", "talker.code_predictor.[ms]*",
                    "talker.code_predictor.lm_head.[01].*"]
    for i, globs in enumerate((["talker.code_predictor.*"], ["talker.model.*"], ["talker.code_predictor.model.codec*"],
                               ["talker.model.text*", "talker.text_projection.linear_fc1.weight"],
                               ["talker.model.norm.*", "*layers*"], ["*weight"], BUT_ONE_HEAD)):
        with cases.part(f"{globs}"):
            configured(f"part-{i}", frozen=globs, **one)
            train(1, "config.json")
            for t in differences(step_path(1, "whole"), step_path(1, f"part-{i}")):
                name = t["path"].removeprefix("/model/")
                stays = any(fnmatch.fnmatchcase(name, glob) for glob in globs)
                check(name == t["path"] or (t["status"] == "changed") == stays, f"{globs}: {name} is {t['status']}")


def test_bf16_learns():
    cases.use(one_rank)
    configured("bf16", bf16={"enabled": True})
    train(2, "config.json")
    check(lines("bf16")[-1]["loss"] < lines("bf16")[0]["loss"], "in bf16 the loss does not fall")


def test_more_frames_on_a_resume_are_a_warning():
    cases.use(one_rank)
    configured("on-1", data={"frames": 12}, max_steps=5)
    _, err = train(1, "config.json")
    check("data.frames 9" in err, err)


cases.main()
