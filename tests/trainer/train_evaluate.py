#!/usr/bin/env python3
"""An evaluation is the mean loss over all samples of the file: the same on any number of ranks and after a resume. It
does not change training."""
import json, os, shutil, signal
from train_lib import (cases, check, config, losses, make_text, messages, metrics, Run, state,
                       step_path, steps, tool, train)

over = {"data": {"eval_path": "other"}, "eval_every": 2, "max_steps": 5, "train_batch_size": 6,
        "scheduler": {"type": "constant", "params": {"warmup_steps": 3}}}


def evaluations(name):
    return {line["step"]: line["eval_loss"] for line in metrics(name) if "eval_loss" in line}


@cases.shared
def inputs():
    make_text()
    with open("text") as f, open("other", "w") as out:
        out.write(f.read()[5000:7500])  # 19 samples of 128 bytes


@cases.shared
def evaluated():
    cases.use(inputs)
    train(1, config(**{**over, "data": {}, "eval_every": 0}, checkpoint={"dir": "without"}, metrics="without.jsonl"))
    out, err = train(1, config(**over))
    return out, err


def test_evaluations_do_not_change_training():
    out, err = cases.use(evaluated)
    check("19 samples of other are evaluated after the last step, and every 2 steps" in err, err)
    check(losses() == losses("without.jsonl"), "evaluations change losses")
    check(state(5) == state(5, "without"), "evaluations change the state")
    found = evaluations("metrics.jsonl")
    check(list(found) == [2, 4, 5], f"evaluated after steps {list(found)}")
    check(found[5] < found[2] and f"evaluation after step 5  loss {found[5]:.5f}" in out, f"{found} {out}")


def test_ranks_and_resumes_do_not_change_evaluations():
    cases.use(evaluated)
    found = evaluations("metrics.jsonl")
    # There are more ranks than the 3 micro-batches of a step, and other ranks resume between two evaluations.
    for ranks, stop in ((5, 3), (4, 5)):
        train(ranks, config(**{**over, "max_steps": stop}, checkpoint={"dir": "resumed"}, metrics="resumed.jsonl"))
    check(evaluations("resumed.jsonl").keys() == {2, 3, 4, 5}, f"{evaluations('resumed.jsonl')}")
    for step in found:
        check(evaluations("resumed.jsonl")[step] == found[step], f"after a resume it is another loss in step {step}")
    check(state(5, "resumed") == state(5), "after a resume the state differs")


def test_an_evaluation_on_the_batch_of_a_step_gives_its_loss():
    cases.use(inputs)
    # The step changes nothing, since its learning rate is 0. The losses differ only by the rounding of
    # 1 / (number of tokens) to fp32, which a step's losses are multiplied by.
    with open("text") as f, open("batch", "w") as out:
        out.write(f.read()[:6 * 128 + 1])
    same = {**over, "data": {"path": "batch", "eval_path": "batch"}, "eval_every": 1, "max_steps": 2,
            "optimizer": {"params": {"lr": 0.0}}}
    # The metrics are in the folder of the checkpoints, which the run makes when it starts.
    train(2, config(**same, checkpoint={"dir": "same/steps"}, metrics="same/lines.jsonl"))
    for line in metrics("same/lines.jsonl"):
        check(abs(line["loss"] - line["eval_loss"]) < 1e-7 * line["loss"], f"{line}")


def test_the_best_steps_are_kept():
    cases.use(inputs)
    kept = {**over, "eval_every": 1, "max_steps": 9, "optimizer": {"params": {"lr": 0.05}}}  # the losses rise again
    for metric in ("eval_loss", "loss"):
        train(2, config(**kept, metrics=f"{metric}.jsonl",
                        checkpoint={"dir": metric, "keep": 1, "keep_best": 2, "keep_every": 4, "keep_metric": metric}))
        values = {line["step"]: line[metric] for line in metrics(f"{metric}.jsonl")}
        best = sorted(values, key=lambda step: (values[step], -step))[:2]
        check(not {4, 8, 9} >= set(best), f"nothing is kept for its {metric}: {values}")
        check(steps(metric) == sorted({4, 8, 9, *best}), f"{steps(metric)} are kept: {values}")
    for overrides, says in (
            (["keep_best=1", "keep=1"], "checkpoint.keep_best: no step has the value eval_loss"),
            (["keep_every=5", "keep=0"], "checkpoint.keep_every: checkpoint.keep is 0"),
            (["keep_seconds=5", "keep=0"], "checkpoint.keep_seconds: checkpoint.keep is 0")):
        with cases.part(f"{overrides}"):
            given = [f"checkpoint.{override}" for override in overrides]
            _, err = train(1, config(**kept), *given, "eval_every=0", "--dry-run", expect=2)
            check(len(messages(err)) == 1 and says in err, err)


def about(step, directory):
    with open(f"{step_path(step, directory)}/about.json") as f:
        return json.load(f)


def results(members):
    return {k: members[k] for k in ("loss", "eval_loss") if k in members}


def test_a_step_that_is_saved_again_keeps_its_values():
    cases.use(inputs)
    again = {**over, "eval_every": 1, "max_steps": 2, "metrics": "again.jsonl",
             "checkpoint": {"dir": "again", "every": 2, "stores": [{"path": "memory", "every": 1, "keep": 2}]}}
    train(2, config(**again))
    first = about(2, "again")
    check(set(results(first)) == {"loss", "eval_loss"}, first)
    for eval_path, keys in ("other", ["loss", "eval_loss"]), ("text", ["loss"]):
        with cases.part(eval_path):
            train(2, config(**{**again, "data": {"eval_path": eval_path}}))
            now = about(2, "again")
            check(now["save"] != first["save"], "the step is not saved again")
            check(results(now) == {k: first[k] for k in keys}, f"{first}, now {now}")


def test_a_resharded_step_keeps_what_the_run_said_about_it():
    cases.use(inputs)
    train(2, config(**{**over, "eval_every": 1, "max_steps": 2}, checkpoint={"dir": "cut"}))
    before = about(2, "cut")
    kept = {"kernels", "processor", "run", "config", "data_type", "eval_data", "init", "loss", "eval_loss"}
    for layout in ("sharded", "--mesh", "fsdp=2"), ("global",):
        tool("dcp-reshard", "cut", "cut", "--force", "--layout", *layout)
        now = about(2, "cut")
        check(now["tool"] == "dcp-reshard" and ("mesh" in now) == (layout[0] == "sharded"), now)
        check({k: now.get(k) for k in kept} == {k: before.get(k) for k in kept} and now["loss"], f"{before}, now {now}")


def test_training_on_what_is_evaluated_is_a_warning():
    cases.use(inputs)
    # Files are compared, not names. The same path twice is intended.
    os.mkdir("both")
    shutil.copy("text", "both/text")
    shutil.copy("other", "both/other")
    os.link("both/other", "linked")
    for path, eval_path, key in (("both", "./both/other", "data.path"), ("both", "linked", "data.path"),
                                 ("text", "both/other", "data.sources[0].path"), ("both/text", "both/other", None),
                                 ("both", "both", None)):
        with cases.part(f"{eval_path}"):
            sources = [{"path": "both"}] if path == "text" else []
            _, err = train(2, config(data={"path": path, "eval_path": eval_path, "sources": sources}), "--dry-run",
                           "checkpoint.dir=none")
            told = [m for m in messages(err) if "so the model is trained on evaluation data" in m]
            check(len(told) == (key is not None) and all(f"{eval_path} is among the files of {key}" in m for m in told), err)


def test_a_loss_that_is_not_finite_is_null_in_the_metrics():
    cases.use(inputs)
    # It is nan in the output for people, and null in JSON, which a resume and --plot read.
    lost = {**over, "data": {"eval_path": "other"}, "optimizer": {"params": {"lr": 1e30, "weight_decay": 1e30}},
            "eval_every": 1, "max_steps": 2}
    lost["scheduler"] = {"type": "constant", "params": {"warmup_steps": 0}}
    for ranks in (1, 3):
        with cases.part(f"{ranks}"):
            name = f"lost{ranks}"
            out, err = train(ranks, config(**lost, checkpoint={"dir": name}, metrics=f"{name}.jsonl"), expect=3)
            check("evaluation after step 1  loss nan" in out and "the run has diverged" in err, f"{out}\n{err}")
            for again in range(2):
                lines = metrics(f"{name}.jsonl")
                check([line["step"] for line in lines] == [1] and lines[0]["eval_loss"] is None, f"{lines}")
                train(ranks, config(**lost, checkpoint={"dir": name}, metrics=f"{name}.jsonl"), expect=3)
            tool("dcp-train", "--plot", f"{name}.svg", f"{name}.jsonl")


def test_an_interrupted_evaluation_is_made_up():
    cases.use(inputs)
    # SIGTERM ends the evaluation. The run that continues makes it up, in the line of its step.
    shutil.copy("text", "long")
    stopped = {**over, "data": {"eval_path": "long"}, "eval_every": 1, "max_steps": 1000}
    train(1, config(**{**stopped, "max_steps": 3}, checkpoint={"dir": "whole"}, metrics="whole.jsonl"))
    last, tries = {}, 0
    while "eval_loss" in last or not last:
        tries += 1
        check(tries < 20, f"no evaluation is interrupted: {last}")
        shutil.rmtree("stopped", ignore_errors=True)
        if os.path.exists("stopped.jsonl"):
            os.unlink("stopped.jsonl")
        run = Run(2, config(**stopped, checkpoint={"dir": "stopped", "every": 1000}, metrics="stopped.jsonl"))
        run.wait_for(lambda: os.path.exists("stopped.jsonl") and metrics("stopped.jsonl"), "the first line")
        os.kill(run.pids()[0], signal.SIGTERM)
        check(run.wait() == 143, run.text(run.err))
        last = metrics("stopped.jsonl")[-1]
    step = last["step"]
    check(step <= 3, f"{step}")
    for ranks in 1, 3:
        _, err = train(ranks, config(**{**stopped, "max_steps": step}, checkpoint={"dir": "stopped"},
                                     metrics="stopped.jsonl"))
        check("was saved before its evaluation had ended: the evaluation is done now" in err, err)
        lines = metrics("stopped.jsonl")
        check([line["step"] for line in lines] == list(range(1, step + 1)), f"{lines}")
        check(evaluations("stopped.jsonl") == {k: v for k, v in evaluations("whole.jsonl").items() if k <= step},
              f"{lines}")
        check({**lines[-1], **last} == lines[-1], f"{lines[-1]} {last}")
    _, err = train(2, config(**{**stopped, "max_steps": 3}, checkpoint={"dir": "stopped"}, metrics="stopped.jsonl"))
    check(state(3, "stopped") == state(3, "whole") or step == 3, "an evaluation that is made up changes the state")


cases.main()
