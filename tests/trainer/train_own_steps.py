#!/usr/bin/env python3
"""A start continues from the newest step that an earlier start of the same dcp-run published in any store, whatever
checkpoint.resume says, even if dcp-run did not notice the publication. Steps of another dcp-run belong to another run.
The start reports where it continues, and how many files were rebuilt."""
import glob, json, os, shutil, signal
from board_lib import BoardRun
from train_lib import cases, check, config, make_text, metrics, step_path, steps, train

constant = {"type": "constant", "params": {"warmup_steps": 0}}
NAME = "123456789abcdef"  # the first digit, 0, is left out


def killed(*args, name=NAME):
    """Starts a run whose ranks are killed when all of them have published steps."""
    os.environ["DCP_RUN_NAME"] = name
    run = BoardRun(2, "config.json", *args)
    check(run.wait_for(lambda: run.pids() and all(e.published > 3 for e in run.entries()), "published steps"),
          run.said())
    for pid in run.pids():
        os.kill(pid, signal.SIGKILL)
    run.wait()
    check(not steps("ckpt"), "checkpoint.dir is due")
    return run


@cases.shared
def inputs():
    make_text()
    config(scheduler=constant, checkpoint={
        "resume": "never", "every": 1000, "stores": [{"path": "memory-{host}", "every": 1, "keep": 2}]})
    train(1, config("whole.json", scheduler=constant, checkpoint={"dir": "whole"}, metrics="whole.jsonl"))


def test_a_start_continues_from_steps_of_the_same_dcp_run():
    cases.use(inputs)
    killed("max_steps=1000")
    newest = max(s for folder in glob.glob("memory-*") for s in steps(folder))
    check(newest >= 3, f"newest step {newest}")
    # A dcp-run that was killed as well and started anew has another name.
    os.environ["DCP_RUN_NAME"] = "77"
    _, err = train(2, "config.json", expect=2)
    check("checkpoint.resume: never, but" in err, err)
    os.environ["DCP_RUN_NAME"] = NAME
    os.environ["DCP_RUN_TAKE_OVER"] = "1"
    run = BoardRun(2, "config.json", f"max_steps={newest + 3}")
    run.end_with(0)
    check("continuing from the newest step, ignoring checkpoint.resume=never" in run.said(), run.said())
    check(run.board.resumed.decode().startswith(f"step {newest} from memory-"), run.board.resumed)
    check(steps("ckpt") == [newest + 3], steps("ckpt"))
    with open(step_path(newest + 3) + "/about.json") as f:
        about = json.load(f)
    check(about["launch"] == about["run"] == "0" + NAME, about)
    check([line["step"] for line in metrics()] == list(range(1, newest + 4)), "lines of metrics")
    check(all(line["mfu"] > 0 for line in metrics()), "ranks that are to train soon do not measure how fast they multiply")


def test_rebuilt_files_are_reported():
    make_text()
    memory = {"path": "apart-{rank}", "every": 1, "keep": 2, "redundancy": "partner", "domain": "{rank}"}
    apart = config("apart.json", scheduler=constant, metrics="apart.jsonl",
                   checkpoint={"dir": "apart", "every": 1000, "stores": [memory]})
    train(3, apart, "max_steps=4")
    shutil.rmtree("apart-1")
    shutil.rmtree("apart")
    run = BoardRun(3, apart, "max_steps=5")
    run.end_with(0)
    check(run.board.resumed.decode() == "step 4 from apart-0, 2 files rebuilt", run.board.resumed)


cases.main()
