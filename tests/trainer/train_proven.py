#!/usr/bin/env python3
"""--prove-every: the state ids in the metrics file are equal for every strategy on 1 to 8 ranks and in both layouts, appear
at every Nth step, and are those of the saved files; replicas are compared."""
import json, subprocess
from train_lib import BIN, cases, check, config, make_text, metrics, MODEL, step_path, train

small = {**MODEL, "hidden_size": 32, "intermediate_size": 48, "vocab_size": 256, "num_hidden_layers": 1}
STEPS = 4


def run(name, ranks, *args, layout="global", stage=3, expect=0, optimizer="AdamW", **fsdp):
    """Returns state ids by step, as the run wrote them."""
    path = config(model=small, data={"sequence_length": 16}, max_steps=STEPS, train_batch_size=5,
                  train_micro_batch_size_per_gpu=1, scheduler={"type": "constant", "params": {}},
                  zero_optimization={"stage": stage}, fsdp=fsdp, metrics=f"{name}.jsonl",
                  checkpoint={"dir": name, "layout": layout, "every": 2})
    out, err = train(ranks, path, "--prove-every", 2, *args, expect=expect)
    return {line["step"]: line.get("state_id") for line in metrics(f"{name}.jsonl")}, out, err


def saved(directory, step):
    done = subprocess.run([f"{BIN}/dcp-inspect", "prove", step_path(step, directory), "--json"],
                          stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["state_id"]


@cases.shared
def on_one_rank():
    make_text()
    one, said, _ = run("one", 1)
    return one, said


def test_state_ids_are_those_of_the_files_of_every_nth_step():
    one, said = cases.use(on_one_rank)
    check(sorted(one) == [1, 2, 3, 4] and one[1] is None and one[3] is None and one[2] != one[4], one)
    check(f"state id after step 2  {one[2]}" in said, said)
    check([saved("one", 2), saved("one", 4)] == [one[2], one[4]], "the saved files' are others")


def test_every_strategy_has_the_same_state_ids():
    one, _ = cases.use(on_one_rank)
    for i, (ranks, options) in enumerate((
            (2, dict(stage=0)), (3, dict(stage=1, layout="sharded")), (4, dict(replicas=2, layout="sharded")),
            (5, dict(stage=2)), (4, dict(replicas=4)), (8, dict(reshard_after_forward=False)),
            (2, dict(cpu_offload=True, offload_path=".")))):
        with cases.part(f"{options} on {ranks} ranks"):
            ids, _, _ = run(f"way{i}", ranks, **options)
            check(ids == one, f"{options} on {ranks} ranks: {ids} / {one}")
            check(saved(f"way{i}", 4) == one[4], f"{options}: the saved file's is another")


def test_the_ring_has_state_ids_of_its_own_files():
    make_text()
    # It has other bits, and so other state ids.
    path = config(model=small, data={"sequence_length": 16}, max_steps=STEPS, train_batch_size=5,
                  train_micro_batch_size_per_gpu=1, zero_optimization={"stage": 3, "ring": True},
                  metrics="ring.jsonl", checkpoint={"dir": "ring"})
    train(3, path, "--prove-every", 1)
    check([line["state_id"] for line in metrics("ring.jsonl")] == [saved("ring", n + 1) for n in range(STEPS)],
          "by the ring the saved files' are others")


def test_wrong_options_are_refused():
    make_text()
    path = config(model=small, data={"sequence_length": 16})
    _, err = train(1, path, "--prove-every", 3, "metrics=null", "checkpoint.dir=none")
    check("--prove-every: metrics is null" in err, err)
    train(1, path, "--prove-every", 0, expect=2)
    train(1, path, "--prove-every", 2, "--plan", expect=2)


cases.main()
