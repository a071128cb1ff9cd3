#!/usr/bin/env python3
"""What ranks report to dcp-run on its board, and what they do on request: phases, progress, published steps; saves while
they continue; an end after a save, with 143 or, to be run again, with 75."""
import os, signal, threading
from board_lib import BoardRun, PHASES, REQUEUE, STOP
from train_lib import cases, check, config, make_text, Run, steps, train


@cases.shared
def inputs():
    make_text()
    config(checkpoint={"every": 0}, max_steps=1000000, scheduler={"type": "constant"})


def watch(run, seen):
    """Adds all numbers of micro-batches that are on the board of the run to `seen`."""
    while run.process.poll() is None:
        seen.update(e.micro_batch for e in run.entries())


def test_progress_and_a_requested_save_and_end():
    cases.use(inputs)
    run = BoardRun(3, "config.json")
    seen = set()

    watcher = threading.Thread(target=watch, args=(run, seen), daemon=True)
    watcher.start()
    run.wait_for_step(2)
    before = [e.progress for e in run.entries()]
    check([e.told for e in run.entries()] == [1] * 3, "ranks do not tell that they run")
    check([e.published for e in run.entries()] == [0] * 3, "published without a save")
    run.wait_for_step(4)
    for e, old in zip(run.entries(), before):
        check(e.progress >= old + 3, f"progress {old}, then {e.progress}: it does not grow with micro-batches")
        at = list(e.at_ns)
        check(at[0] == 0 and at[1:] == sorted(at[1:]) and at[1] > 0, f"times of the phases: {at}")
        check(e.phase == len(PHASES) and e.slowest_ns > 0, f"phase {e.phase}, slowest step {e.slowest_ns} ns")
    check(run.board.resumed_is_set == 1 and b"beginning" in run.board.resumed, run.board.resumed)
    run.board.saves_requested = 1
    run.wait_for(lambda: all(e.saves_done == 1 for e in run.entries()), "the answer to a save")
    saved = [e.published - 1 for e in run.entries()]
    check(steps() == saved[:1] and len(set(saved)) == 1, f"{steps()} are there, published is {saved}")
    run.wait_for_step(saved[0] + 3)
    check(steps() == saved[:1], f"one save was asked for: {steps()}")
    run.board.end_requested = STOP
    run.end_with(143)
    watcher.join()
    check(seen == {0, 1, 2, 3}, f"micro-batches {seen} of 7 on 3 ranks")
    last = run.board.entries[0].step
    check(steps() == [saved[0], last] and run.board.entries[2].published == last + 1, f"{steps()}, not {last}")
    for what in (f"dcp-run: step {saved[0]} is saved", f"stopped by dcp-run: step {last} is saved in ckpt"):
        check(what in run.said(), run.said())


@cases.shared
def trained():
    """Trains to step 2 of the run."""
    cases.use(inputs)
    train(1, "config.json", "max_steps=2")


def test_the_board_requeues_a_run():
    cases.use(trained)
    last = steps()[-1]
    run = BoardRun(2, "config.json")
    run.wait_for_step(last + 1)
    check(run.board.resumed.decode() == f"step {last} from ckpt", run.board.resumed)
    run.board.end_requested = REQUEUE
    run.end_with(75)


def test_sigusr2_requeues_a_run():
    cases.use(trained)
    run = BoardRun(2, "config.json")
    run.wait_for_step(run.board.entries[0].step + 1)
    os.kill(run.pids()[1], signal.SIGUSR2)
    run.wait_for(lambda: "SIGUSR2: step" in run.said(), "the end that SIGUSR2 asks for")
    run.end_with(75)


def test_sigusr2_requeues_a_run_without_a_board():
    cases.use(trained)
    # A SIGTERM does not change that.
    alone = Run(1, "config.json")
    alone.wait_for(lambda: "continuing from step" in alone.text(alone.err), "the start")
    alone.process.send_signal(signal.SIGUSR2)
    alone.process.send_signal(signal.SIGTERM)
    check(alone.wait() == 75, f"not 75 after SIGUSR2: {alone.text(alone.err)}")
    check("stopped by SIGUSR2" in alone.text(alone.err), alone.text(alone.err))


def test_a_board_of_another_build_is_left_alone():
    cases.use(trained)
    # The run continues without it.
    run = BoardRun(1, "config.json", f"max_steps={steps()[-1] + 2}", bytes=8)
    check(run.wait() == 0 and run.board.entries[0].told == 0, run.said())


def test_a_refusal_is_reported():
    cases.use(trained)
    run = BoardRun(2, "config.json", "checkpoint.resume=never")
    run.end_with(2)
    check(all(e.phase == 1 for e in run.entries()), "phases of ranks that refuse")


cases.main()
