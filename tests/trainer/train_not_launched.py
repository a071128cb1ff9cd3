#!/usr/bin/env python3
"""mpirun or MPI_Init that fails, with statuses that a rank might have given: dcp-run tries again, and
once there is room the run goes to its end. What dcp-train itself refuses is not tried again."""
import re
from train_lib import *

make_text()
small = config(max_steps=2)


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


# A rank without memory: its program is not loaded, MPI_Init fails, or it comes to its first messages,
# which Open MPI would lose.
train(1, config("whole.json", max_steps=2, checkpoint={"dir": "whole"}, metrics="whole.jsonl"))
for limit in (100000, 200000, 280000):
    limited = ["sh", "-c", 'f=$1.$OMPI_COMM_WORLD_RANK; shift; '
               f'[ ${{f##*.}} = 0 ] || [ -e $f ] || {{ : >$f; ulimit -v {limit}; }}; exec "$@"',
               "sh", f"{scratch}/limited-{limit}", TRAINER]
    err = ends(run(*limited, small, f"checkpoint.dir=ckpt-{limit}"), 0, 2)
    check("start 1 failed with status" in err, err)
    check(state(2, f"ckpt-{limit}") == state(2, "whole"), "the state differs")

# A rank that ends on its own account: usage, configuration.
err = ends(run(TRAINER, small, "max_steps=none"), 2, 1)
check("status 2, which no restart would change" in err, err)
err = ends(run(TRAINER, "--no-such-option"), 2, 1)

# No room for what mpirun keeps: of the folder itself, or in it.
os.mkdir("tiny")
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=6", "tmpfs", "tiny"],
                  capture_output=True).returncode != 0:
    print("SKIPPED: a full TMPDIR, as we may not mount")
    sys.exit(77)
try:
    place = f"{scratch}/tiny"
    full = run(TRAINER, small, env={"OMPI_MCA_orte_tmpdir_base": place}.items())
    err = ends(full, 3, 4)
    check("which is mpirun's own" in err, err)
    check("giving up after 3 restarts" in err, err)
    check(not os.listdir("tiny"), f"left: {os.listdir('tiny')}")
finally:
    subprocess.run(["umount", "tiny"], check=True)
