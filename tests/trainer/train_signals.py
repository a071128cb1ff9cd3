#!/usr/bin/env python3
"""SIGUSR1 to any rank saves, and the run continues; SIGTERM, SIGINT or SIGHUP to any rank saves and ends with 143; a SIGTERM
after SIGINT changes nothing, and a second SIGINT ends the run at once, also within a long step. Nothing else is saved if
checkpoint.every is 0, and a resumed run continues from there."""
import os, shutil, signal
from train_lib import cases, check, config, make_text, messages, metrics, Run, steps, tool, train

for number in (signal.SIGINT, signal.SIGHUP):  # an ignored signal would be inherited
    signal.signal(number, signal.SIG_DFL)


def reached(step, lines="metrics.jsonl"):
    try:
        return metrics(lines)[-1]["step"] >= step
    except (OSError, IndexError, ValueError):  # the file does not exist yet, or ends in half a line
        return False


SECOND = "a second one ends the run at once"


def test_sigusr1_saves_and_sigterm_saves_and_ends():
    make_text()
    for ranks in (1, 3):
        with cases.part(f"{ranks} ranks"):
            endless = config(checkpoint={"dir": f"on{ranks}", "every": 0}, max_steps=1000000,
                             scheduler={"type": "constant"})
            run = Run(ranks, endless)
            run.wait_for(lambda: run.pids() and reached(3), "step 3")
            os.kill(run.pids()[-1], signal.SIGUSR1)
            run.wait_for(lambda: steps(f"on{ranks}"), "the save that SIGUSR1 asks for")
            first = steps(f"on{ranks}")[0]
            run.wait_for(lambda: reached(first + 3), "three more steps")
            check(steps(f"on{ranks}") == [first], f"more is saved: {steps(f'on{ranks}')}")
            os.kill(run.pids()[-1], signal.SIGTERM)
            status = run.wait()
            err = run.text(run.err)
            check(status == 143, f"exit {status} after SIGTERM: {err}")
            last = metrics()[-1]["step"]
            check(steps(f"on{ranks}") == [first, last], f"{steps(f'on{ranks}')}, the last step is {last}")
            for what in (f"SIGUSR1: step {first} is saved", f"stopped by SIGTERM: step {last} is saved"):
                check(any(what in line for line in messages(err)), f"{what} is not told: {err}")
            train(ranks, endless, f"max_steps={last + 2}")
            lines = [line["step"] for line in metrics()]
            check(lines == list(range(1, last + 3)), f"metrics hold the steps {lines}")
            check(steps(f"on{ranks}")[-1] == last + 2, "the last step of a run is not saved")
            os.remove("metrics.jsonl")


def test_ctrl_c_ends_with_a_save_also_if_launchers_send_sigterm():
    make_text()
    endless = config(checkpoint={"dir": "on3", "every": 0}, max_steps=1000000, scheduler={"type": "constant"})
    for ranks, first, then in ((1, signal.SIGINT, []), (3, signal.SIGINT, [signal.SIGTERM]), (1, signal.SIGHUP, [])):
        with cases.part(f"{ranks} ranks, {first.name}"):
            run = Run(ranks, endless, "checkpoint.dir=interrupted", "metrics=interrupted.jsonl")
            run.wait_for(lambda: run.pids() and reached(1, "interrupted.jsonl"), "step 1")
            for number in [first] + then:
                for pid in run.pids():
                    try:
                        os.kill(pid, number)
                    except ProcessLookupError:  # it has saved and ended by now
                        pass
                run.wait_for(lambda: number == signal.SIGHUP or SECOND in run.text(run.err), "the answer to SIGINT")
            status, err = run.wait(), run.text(run.err)
            check(status == 143, f"exit {status} after {first}: {err}")
            check(any(f"stopped by {by.name}: step" in err for by in [first] + then), err)
            tool("dcp-inspect", "verify", "interrupted")
            shutil.rmtree("interrupted")
            os.remove("interrupted.jsonl")


def test_a_second_sigint_ends_a_long_step():
    make_text()
    endless = config(checkpoint={"every": 0}, max_steps=1000000, scheduler={"type": "constant"})
    run = Run(1, endless, "checkpoint.dir=ended", "train_batch_size=1000000")  # a step that takes hours
    run.wait_for(lambda: "random start" in run.text(run.err), "the start")
    os.kill(run.process.pid, signal.SIGINT)
    run.wait_for(lambda: SECOND in run.text(run.err), "the answer to SIGINT")
    os.kill(run.process.pid, signal.SIGINT)
    status = run.wait()
    check(status == -signal.SIGINT and not steps("ended"), f"exit {status} after two SIGINT")


cases.main()
