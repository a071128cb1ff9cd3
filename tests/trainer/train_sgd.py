#!/usr/bin/env python3
"""SGD with momentum: losses (1e-5), norms (5e-5) and the size of each parameter after five steps (1e-4) are those of
torch.optim.SGD (tests/data/golden_sgd.json). The bits are the same on any number of ranks, with the state on disk,
and after a resume. --plan predicts one slot. A checkpoint of another optimizer starts a new buffer, and reports it."""
import json, os, re, shutil
from train_lib import (cases, check, config, make_text, metrics, sizes, SOURCE, state, step_path,
                       tool, train)

LOSS, NORM, SIZE = 1e-5, 5e-5, 1e-4
RANKS = [ranks for ranks in (1, 2, 3) if ranks <= int(os.environ.get("DCP_TEST_RANKS", 3))]
golden = json.load(open(f"{SOURCE}/tests/data/golden_sgd.json"))
folder = f"{SOURCE}/tests/data/golden/llama"


def sgd(name, run, **keys):
    return config(model=folder, init=folder, max_steps=5, train_batch_size=4, train_micro_batch_size_per_gpu=1,
                  data={"type": "safetensors", "path": f"{folder}/golden.safetensors", "sequence_length": 32},
                  gradient_clipping=golden["clip"], optimizer={"type": "SGD", "params": run["params"]},
                  scheduler={"type": "constant", "params": {}}, checkpoint={"dir": name}, metrics=f"{name}.jsonl",
                  **keys)


@cases.shared
def trained():
    for number, run in enumerate(golden["runs"]):
        reference = None
        for ranks in RANKS:
            name = f"run{number}on{ranks}"
            train(ranks, sgd(name, run))
            for line, loss, norm in zip(metrics(f"{name}.jsonl"), run["losses"], run["grad_norms"], strict=True):
                check(abs(line["loss"] / loss - 1) < LOSS, f"{name}: {line}, loss {loss}")
                check(abs(line["grad_norm"] / norm - 1) < NORM, f"{name}: {line}, norm {norm}")
            reference = reference or state(5, name)
            check(state(5, name) == reference, f"{name}: state.h5 differs from one rank's")
        got = sizes(step_path(5, f"run{number}on1"))
        check(got.keys() == run["sizes"].keys(), f"{got.keys()}")
        for tensor, want in run["sizes"].items():
            check(abs(got[tensor] / want - 1) < SIZE, f"run {number}: {tensor} is {got[tensor]}, not {want}")
    return run, reference


def test_values_are_those_of_pytorch_on_any_ranks():
    trained()


def test_a_state_on_disk_has_the_same_bits():
    run, reference = cases.use(trained)
    c = sgd("disk", run, fsdp={"cpu_offload": True, "offload_path": "."})
    if "DCP_TEST_DEVICE" not in os.environ:
        train(RANKS[-1], c)
        check(state(5, "disk") == reference, "a state on disk has other bits")


def test_the_state_has_one_slot():
    run, _ = cases.use(trained)
    shown = tool("dcp-inspect", "show", step_path(5, "run1on1"))
    slots = re.findall(r"/optimizer/(\w+)/(\S+)", shown)
    check({slot for slot, _ in slots} == {"momentum_buffer"}, shown)
    check({name for _, name in slots} == set(run["sizes"]), shown)


def test_the_plan_has_one_slot():
    run, _ = cases.use(trained)
    c = sgd("disk", run, fsdp={"cpu_offload": True, "offload_path": "."})
    text = tool("dcp-train", c, "--plan", "fsdp.cpu_offload=false", "fsdp.offload_path=null")
    plan = {key: float(n) for key, n in re.findall(r"^  (\S.*?)  +([0-9.]+)$", text, re.M)}
    check(plan["moments"] == plan["gradients"] > 0, plan)


def test_a_resumed_run_has_the_same_bits():
    run, reference = cases.use(trained)
    # It continues from step 2 on another number of ranks.
    c = sgd("again", run)
    shutil.copytree(step_path(2, "run1on1"), step_path(2, "again"))
    train(RANKS[-1], c)
    check(state(5, "again") == reference, "a resumed run has other bits")


def test_the_checkpoint_of_another_optimizer_starts_a_new_buffer():
    make_text()
    adamw = config("adamw.json", max_steps=2, checkpoint={"dir": "other"})
    train(1, adamw)
    c = config("sgd.json", max_steps=3, optimizer={"type": "SGD", "params": {"lr": 0.1}}, checkpoint={"dir": "other"})
    _, err = train(1, c)
    check("continuing from step 2" in err and "has no optimizer state of SGD: it starts at zero" in err, err)
    check('optimizer.type "AdamW", but the run continues with "SGD"' in err, err)


def test_nesterov_needs_momentum():
    make_text()
    _, err = train(1, config("both.json", optimizer={"type": "SGD", "params": {"nesterov": True, "dampening": 0.5}}),
                   expect=2)
    check("nesterov: needs a momentum above 0 and a dampening of 0" in err, err)


def test_print_config_shows_its_defaults():
    c = config(optimizer={"type": "SGD", "params": {"lr": 0.1}})
    shown = json.loads(tool("dcp-train", c, "--print-config"))["optimizer"]
    check(shown == {"type": "SGD", "params": {"lr": 0.1, "momentum": 0, "dampening": 0, "weight_decay": 0,
                                              "nesterov": False, "no_decay": []}}, shown)


cases.main()
