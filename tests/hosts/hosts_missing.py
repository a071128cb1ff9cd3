#!/usr/bin/env python3
"""A host of the host file is not available when the run begins. It is left out if that is allowed; otherwise the
run ends with a message that names the host and says what to do. Nothing is left on the other hosts, not even of
runs that were killed."""
import os, re
from hosts_train import HERE, LOCAL, TIMEOUT, Supervised, cases, check_clear, host_file, hosts
from train_lib import check, config, make_text, steps


def lose_h3():
    """Turns h3 off until the case ends. Returns a host file that names it, and the configuration."""
    make_text()
    hosts.kill("h3")
    cases.at_end(hosts.boot, "h3")
    return host_file("h1 slots=1", "h2 slots=1", "h3 slots=1"), config(max_steps=2)


def check_nothing_left():
    check_clear(("h1", "h2"))
    for name in ("h1", "h2"):
        left = hosts.run(name, ["find", f"{LOCAL}/tmp", "/dev/shm", "-name", "dcp-run.*"],
                         capture_output=True, text=True).stdout
        check(not left, f"left on {name}: {left}")


def test_the_run_ends_and_says_what_to_do():
    cluster, path = lose_h3()
    text = Supervised("same", ["-n", 3, "--hosts", cluster, "--max-restarts", 1], path).ends(3)
    check("h3" in text and "--on-failure shrink" in text, text)
    check(not os.path.exists("ckpt/step-00000001"), "a step was done")
    check_nothing_left()


def test_the_least_number_of_ranks_ends_the_run():
    cluster, path = lose_h3()
    text = Supervised("least", ["-n", 3, "--hosts", cluster, "--on-failure", "shrink", "--min", 3, "--max-restarts", 0], path).ends(3)
    check("h3" in text and "--min" in text, text)
    check(not os.path.exists("ckpt/step-00000001"), "a step was done")
    check_nothing_left()


def test_shrink_leaves_the_host_out():
    """Also removes what killed runs have left on another host."""
    for folder in (f"{LOCAL}/tmp/dcp-run.killed", "/dev/shm/dcp-run.killed"):
        hosts.run("h2", ["sh", "-c", f"mkdir -m 700 {folder} && touch {folder}/.dcp-run {folder}/file"])
    cluster, path = lose_h3()
    text = Supervised("shrink", ["-n", 3, "--hosts", cluster, "--on-failure", "shrink"], path).ends()
    lost_s = re.search(r"start 2: .*: ([0-9.]+) s$", text, re.M)
    check(lost_s and float(lost_s[1]) < TIMEOUT and "2 starts, 1 after failures" in text, f"not counted: {text}")
    check(steps() == [1, 2] and "on 2 ranks" in text, text)
    check_nothing_left()


def test_only_the_host_that_does_not_answer_is_named():
    """The start fails before another host is up; dcp-run checks whether that one answers."""
    _, path = lose_h3()
    with open("rsh", "w") as f:
        f.write(f'#!/bin/sh\n[ "$1" = nowhere ] || sleep 0.5\nexec {HERE}/rsh.py "$@"\n')
    os.chmod("rsh", 0o755)
    os.environ["OMPI_MCA_plm_rsh_agent"] = os.path.abspath("rsh")
    unknown = host_file("h1 slots=1", "h2 slots=1", "nowhere slots=1", path="unknown")
    text = Supervised("unknown", ["-n", 3, "--hosts", unknown, "--max-restarts", 1], path).ends(3)
    check("host nowhere does not answer" in text and "host h2" not in text, text)
    check_nothing_left()


cases.main()
