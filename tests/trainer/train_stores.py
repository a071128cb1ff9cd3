#!/usr/bin/env python3
"""A list of stores: every step in memory, with redundancy, few steps in checkpoint.dir. Runs continue from the newest step
that is left in any store, also on other numbers of ranks, and end with the state of an undisturbed run."""
import os, shutil, signal, subprocess
from train_lib import (BIN, cases, check, config, losses, make_text, messages, Run, state,
                       step_path, steps, train)

constant = {"type": "constant", "params": {"warmup_steps": 0}}


def settings(steps_to, *stores, directory="parts", **checkpoint):
    return config(max_steps=steps_to, scheduler=constant, metrics=f"{directory}.jsonl",
                  checkpoint={"dir": directory, "stores": stores, **checkpoint})


def store(path, every=1, keep=2, redundancy="none"):
    return {"path": path, "every": every, "keep": keep, "redundancy": redundancy}


memory = {**store("memory-{rank}", redundancy="partner"), "domain": "{rank}"}  # as if on hosts
disk = store("disk-{host}-{rank}", 2)


def expect(err, *texts):
    for text in texts:
        check(text in err, f"{text} is not in {err}")


def kill_at(ranks, step, *stores):
    """Kills all ranks once memory has that step, before checkpoint.dir gets it."""
    run = Run(ranks, settings(1000, *stores, every=1000))
    run.wait_for(lambda: all(os.path.isdir(step_path(step, f"memory-{r}")) for r in range(ranks)),
                 f"step {step} in memory")
    for pid in run.pids():
        os.kill(pid, signal.SIGKILL)
    run.wait()
    have = min(max(steps(f"memory-{r}")) for r in range(ranks))
    check(have >= step and not steps("parts"), (have, steps("parts")))
    return have


@cases.shared
def lost_memory():
    make_text()
    # The run is killed with nothing in checkpoint.dir. One node's memory is lost, and rebuilt from its partner's.
    killed = kill_at(3, 3, memory, disk)
    shutil.rmtree("memory-1")
    whole = killed + 8
    listed = subprocess.run([os.path.join(BIN, "dcp-inspect"), "ls", "memory-0"],
                            check=True, stdout=subprocess.PIPE, text=True).stdout
    check("survives the loss of 1 of 3 domains" in listed, listed)
    _, err = train(3, settings(killed + 2, memory, disk, every=1000))
    expect(err, "rebuilt", f"continuing from step {killed}", "memory-0")
    check(steps("parts") == [killed + 2], steps("parts"))
    return killed, whole


def test_lost_memory_is_rebuilt():
    lost_memory()


def test_a_part_of_a_private_store_is_no_step():
    killed, whole = cases.use(lost_memory)
    # A start with one node's folder neither takes it for a whole step, nor starts a new run.
    last = step_path(max(steps("memory-0")), "memory-0")
    for args in (["checkpoint.dir=memory-0"], ["checkpoint.dir=memory-0", "--dry-run"],
                 ["checkpoint.dir=new", f"checkpoint.resume={last}"]):
        _, err = train(2, config(max_steps=whole), *args, expect=2)
        expect(messages(err)[-1], f"{last}: it is one node's part of a private store's step, 1 of its 3 shards",
               "the others are on other nodes", "checkpoint.stores")
        check("overwrite" not in err, err)


@cases.shared
def lost_all_memory():
    killed, whole = cases.use(lost_memory)
    # The disks have an older step, checkpoint.dir the newest one.
    for r in range(3):
        shutil.rmtree(f"memory-{r}")
    _, err = train(3, settings(killed + 4, memory, disk, every=2))
    expect(err, f"continuing from step {killed + 2}: ", "parts/step-")
    return killed, whole


@cases.shared
def fewer_ranks():
    killed, whole = cases.use(lost_all_memory)
    # No rank sees the third node's memory, which is rebuilt.
    _, err = train(2, settings(killed + 6, memory, disk, every=2))
    expect(err, f"continuing from step {killed + 4}: ", "memory-0/step-", "rebuilt",
           "survives the loss of 0 failure domains from now on, not of 1")
    return killed, whole


@cases.shared
def more_ranks():
    killed, whole = cases.use(fewer_ranks)
    # The ranks see all that two ranks left, which is only in memory. max_steps is reached, so the step is
    # saved.
    shutil.rmtree(step_path(killed + 6, "parts"))
    _, err = train(4, settings(killed + 6, memory, disk, every=2))
    expect(err, f"continuing from step {killed + 6}: ", "memory-0/step-", "is saved in parts")
    check(max(steps("parts")) == killed + 6, steps("parts"))
    _, err = train(4, settings(killed + 6, memory, disk, every=2))
    expect(err, "is saved in parts")  # again, since nobody has read the copy there
    return killed, whole


def test_without_memory_the_newest_step_on_disk_is_used():
    lost_all_memory()


def test_fewer_ranks_rebuild_what_they_do_not_see():
    fewer_ranks()


def test_more_ranks_save_the_last_step_from_memory():
    more_ranks()


def test_resume_never_counts_every_store():
    _, whole = cases.use(more_ranks)
    _, err = train(4, settings(whole, memory, disk, every=whole), "checkpoint.resume=never", expect=2)
    expect(err, "the list of stores holds")


def test_a_dry_run_names_the_newest_step():
    killed, whole = cases.use(more_ranks)
    # Without redundancy, nothing is rebuilt.
    alone = {key: memory[key] for key in memory if key not in ("redundancy", "domain")}
    _, err = train(1, settings(whole, alone, disk, every=whole), "--dry-run")
    expect(err, f"would continue from step {killed + 6}: parts/")


def test_redundancy_that_one_domain_cannot_have_is_refused():
    _, whole = cases.use(more_ranks)
    _, err = train(1, settings(whole, memory, disk, every=whole), "--dry-run", expect=2)
    expect(err, "checkpoint.stores[0].redundancy: partner needs ranks in at least 2 failure domains")
    _, err = train(1, settings(whole, memory, disk, every=whole), expect=2)
    expect(err, "checkpoint.stores[0].redundancy: partner needs ranks in at least 2 failure domains")


def test_the_run_ends_as_an_undisturbed_one():
    _, whole = cases.use(more_ranks)
    train(4, settings(whole, memory, disk, every=whole, **{"async": False}))
    train(1, settings(whole, directory="whole", every=whole))
    check(losses("parts.jsonl") == losses("whole.jsonl"), "losses differ")
    check(state(whole, "parts") == state(whole, "whole"), "the state differs")


cases.main()
