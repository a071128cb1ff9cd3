"""What tests share that train on three hosts: train_lib.py's model, in the folder SHARED."""
import os, sys
from hosts_lib import *

hosts = make(3)
os.environ["TMPDIR"] = SHARED
sys.path.insert(0, f"{HERE}/../trainer")
from train_lib import *

for name in ("OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_btl_vader_backing_directory"):
    del os.environ[name]  # each host has its own
make_text()


def private(name, redundancy):
    """A store of which each host has a directory of its own, in memory, in front of checkpoint.dir."""
    return [{"path": f"{LOCAL}/{name}", "every": 1, "keep": 2, "redundancy": redundancy}]


def mpirun(ranks, *args, at=("h1", "h2", "h3")):
    """dcp-train from h1 on hosts that take as many ranks each; stdout and stderr together."""
    slots = ",".join(f"{name}:{-(-ranks // len(at))}" for name in at)
    run = hosts.start("h1", ["mpirun", "--host", slots, "--map-by", "node", "-n", ranks, TRAINER, *args],
                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    text = run.communicate(timeout=TIMEOUT)[0]
    check(run.returncode == 0, f"exit {run.returncode}: {text}")
    return text
