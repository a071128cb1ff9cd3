#!/usr/bin/env python3
"""mpirun or MPI_Init fails, with statuses that a rank might have given: dcp-run tries again, and once there is room the run
goes to its end. What dcp-train itself refuses is not tried again."""
import os, re, subprocess
from train_lib import BIN, cases, check, config, fail, make_text, state, TIMEOUT, train, TRAINER


def run(*ranks, env=()):
    return subprocess.Popen([f"{BIN}/dcp-run", "-n", "2", "--", *ranks], stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, **dict(env)})


def ends(process, expect, starts):
    try:
        _, err = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        fail(f"hangs: {process.communicate()[1]}")
    check(process.returncode == expect, f"exit {process.returncode}, not {expect}: {err}")
    check(len(re.findall("^dcp-run: start [0-9]*, ", err, re.M)) == starts, f"not {starts} starts: {err}")
    return err


@cases.shared
def inputs():
    make_text()
    config(max_steps=2)


def test_a_rank_without_memory_is_tried_again():
    cases.use(inputs)
    # Its program is not loaded, or MPI_Init fails, or it reaches its first messages, which Open MPI would
    # lose.
    train(1, config("whole.json", max_steps=2, checkpoint={"dir": "whole"}, metrics="whole.jsonl"))
    for limit in (100000, 200000, 280000):
        with cases.part(f"{limit}"):
            limited = ["sh", "-c", 'f=$1.$OMPI_COMM_WORLD_RANK; shift; '
                       f'[ ${{f##*.}} = 0 ] || [ -e $f ] || {{ : >$f; ulimit -v {limit}; }}; exec "$@"',
                       "sh", f"{os.getcwd()}/limited-{limit}", TRAINER]
            err = ends(run(*limited, "config.json", f"checkpoint.dir=ckpt-{limit}"), 0, 2)
            check("start 1 failed with status" in err, err)
            check(state(2, f"ckpt-{limit}") == state(2, "whole"), "the state differs")


def test_a_rank_that_refuses_is_not_tried_again():
    cases.use(inputs)
    err = ends(run(TRAINER, "config.json", "max_steps=none"), 2, 1)
    check("status 2, which no restart would change" in err, err)
    err = ends(run(TRAINER, "--no-such-option"), 2, 1)


def test_a_full_folder_of_mpirun_ends_the_run():
    cases.use(inputs)
    # mpirun has no space for its folder, or for the files in it.
    os.mkdir("tiny")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=6", "tmpfs", "tiny"],
                      capture_output=True).returncode != 0:
        cases.skip("mounting a file system is not permitted")
    try:
        place = f"{os.getcwd()}/tiny"
        full = run(TRAINER, "config.json", env={"OMPI_MCA_orte_tmpdir_base": place}.items())
        err = ends(full, 3, 4)
        check("which is that of mpirun, not of a rank" in err, err)
        check("giving up after 3 restarts" in err, err)
        check(not os.listdir("tiny"), f"left: {os.listdir('tiny')}")
    finally:
        subprocess.run(["umount", "tiny"], check=True)


cases.main()
