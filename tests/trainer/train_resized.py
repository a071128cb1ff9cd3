#!/usr/bin/env python3
"""dcp-run requests an end to start other ranks: 4, 8, 3, 4, in mid-epoch. No step is computed twice, each sample is used
once per epoch, and the end is that of the undisturbed run. The step goes to the fastest store in which other ranks see
everything."""
from board_lib import BoardRun, RESIZE
from train_lib import cases, check, config, losses, state, steps, train

LAST = 30
constant = {"type": "constant", "params": {"warmup_steps": 0}}


def settings(directory, *stores, **checkpoint):
    return config(f"{directory}.json", max_steps=LAST, scheduler=constant, metrics=f"{directory}.jsonl",
                  checkpoint={"dir": directory, "stores": stores, **checkpoint})


def store(path, **over):
    return {"path": path, "every": 1, "keep": 2, **over}


def resized(name, given, starts, dropped=0):
    """Runs on these numbers of ranks, one after the other; each time, the next start leaves `dropped` hosts. Returns
    the steps at which they changed, and where ranks say that they continue."""
    at, told, loaded = [], [], 0
    for ranks in starts[:-1]:
        run = BoardRun(ranks, given)
        run.wait_for_step(loaded + 2)
        run.board.hosts_dropped = dropped
        run.board.end_requested = RESIZE
        run.end_with(143)
        told.append(run.board.resumed.decode())
        ends = {(e.step, e.published) for e in run.entries()}
        loaded = run.board.entries[0].step
        check(ends == {(loaded, loaded + 1)}, f"{name}: step and published of {ranks} ranks: {ends}")
        check(f"step {loaded} is handed over" in run.said(), run.said())
        check(loaded < LAST, f"{name}: the last step is reached before all changes")
        at.append(loaded)
    run = BoardRun(starts[-1], given)
    run.end_with(0)
    told.append(run.board.resumed.decode())
    for step, text in zip(at, told[1:]):
        check(text.startswith(f"step {step} from "), f"{name}: left at step {step}, going on from {text}")
    return at, told[1:]


@cases.shared
def inputs():
    with open("text", "w") as f:  # 23 samples per epoch and 14 per step: only the first step begins with an epoch
        f.writelines(f"{i * i % 97} times {i}\n" for i in range(1000))
    with open("text", "r+") as f:
        f.truncate(23 * 128 + 1)


def is_whole(name):
    check((state(LAST, name), losses(f"{name}.jsonl")) == whole_run(),
          f"{name}: another end than the undisturbed run's")


@cases.shared
def whole_run():
    cases.use(inputs)
    train(1, settings("whole", every=LAST))
    whole = state(LAST, "whole"), losses("whole.jsonl")
    check(len(whole[1]) == LAST, "the undisturbed run lacks lines")
    return whole


def test_a_step_goes_to_the_checkpoint_directory():
    cases.use(whole_run)
    # No save is due at this step.
    at, told = resized("shared", settings("shared", every=1000), (4, 8, 3, 4))
    check(steps("shared") == [*at, LAST], f"{steps('shared')}, handed over at {at}")
    is_whole("shared")


def test_a_step_goes_to_memory():
    cases.use(whole_run)
    # checkpoint.dir gets nothing before the end.
    at, told = resized("near", settings("near", store("memory-{host}"), every=1000), (3, 2))
    check(all("memory-" in text for text in told) and steps("near") == [LAST], f"{told}, {steps('near')}")
    is_whole("near")


def test_a_step_leaves_the_memory_of_hosts_that_are_left():
    cases.use(whole_run)
    at, told = resized("left", settings("left", store("left-{host}", every=1000), every=1000), (2, 3), dropped=1)
    check(all("left-" not in text for text in told) and steps("left") == [*at, LAST], f"{told}, {steps('left')}")
    is_whole("left")


def test_stores_that_are_due_get_the_step_too():
    cases.use(whole_run)
    # The step goes into memory, which is not due, and into slower stores, which are.
    at, told = resized("late", settings("late", store("later-{host}", every=1000), every=1), (2, 3))
    check("from later-" in told[0], told)
    check(steps("late") == list(range(1, LAST + 1)), f"{steps('late')}")
    is_whole("late")


def test_a_store_that_other_ranks_may_lack_is_left_out():
    cases.use(whole_run)
    # Other ranks may not have the folder of a rank.
    at, told = resized("apart", settings("apart", store("apart-{rank}", redundancy="partner", domain="{rank}"),
                                         every=1000),
                       (4, 2))
    check(all("from apart" in text and "rebuilt" not in text for text in told), f"{told}")
    check(steps("apart") == [*at, LAST], f"{steps('apart')}, handed over at {at}")
    is_whole("apart")


cases.main()
