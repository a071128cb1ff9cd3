#!/usr/bin/env python3
"""dcp-run --logs on three hosts: the output of ranks on other hosts is in their files and on the console. If the
host file changes meanwhile, ranks move to other hosts, and their output goes to the files of the next start."""
import os
from hosts_lib import TIMEOUT, cases, make, until

hosts = make(3)
BIN = os.environ["DCP_BIN"]
WAIT = 'echo "rank $PMIX_RANK on $(uname -n)"; echo problem >&2; until [ -e end ]; do sleep 0.01; done'


def check(holds, what):
    assert holds, f"{what}\n" + "".join(f"{name}: {text(name)}\n" for name in ("out", "err"))


def text(path):
    try:
        with open(path) as f:
            return f.read()
    except FileNotFoundError:
        return ""


def write_hosts(*lines):
    with open("cluster", "w") as f:
        f.writelines(f"{line}\n" for line in lines)


def logs(start):
    """Returns what each rank of a start has printed, without the times; the order of its two streams is not
    determined."""
    return [sorted(line.split(" ", 2)[2] for line in text(f"logs/start-{start}/rank-{r}.log").splitlines())
            for r in range(3)]


def until_logged(start, *at):
    wanted = [["problem", f"rank {r} on {name}"] for r, name in enumerate(at)]
    try:
        until(lambda: logs(start) == wanted, f"start {start}")
    except TimeoutError as error:
        check(False, f"{error}: {logs(start)}, not {wanted}")


def test_lines_follow_the_ranks_to_other_hosts():
    write_hosts("h1 slots=2", "h2 slots=1", "h3 slots=1")
    with open("out", "w") as out, open("err", "w") as err:
        run = hosts.start("h1", [f"{BIN}/dcp-run", "-n", 3, "--hosts", "cluster", "--logs", "logs", "--",
                                 "bash", "-c", WAIT], stdout=out, stderr=err)
    cases.at_end(run.kill)
    until_logged(1, "h1", "h1", "h2")
    write_hosts("h1 slots=1", "h3 slots=2")
    until_logged(2, "h1", "h3", "h3")
    open("end", "w").close()
    check(run.wait(TIMEOUT) == 0, "the run failed")
    for r, name in enumerate(("h1", "h3", "h3")):
        check(f" rank {r}: rank {r} on {name}\n" in text("out"), f"rank {r} is not on stdout")
        check(f" rank {r}: problem\n" in text("err"), f"rank {r} is not on stderr")
    check("the hosts have changed" in text("err"), "not said")
    for name in hosts.names:
        try:
            until(lambda: not hosts.pids(name), "the end", 5)
        except TimeoutError:
            check(False, f"left on {name}: {hosts.pids(name)}")


cases.main()
