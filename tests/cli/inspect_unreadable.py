#!/usr/bin/env -S python3 -B
"""A step's folder that another user may list and not enter (chmod 744) is unreadable, not damaged:
ls and verify say so, with exit status 3."""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from states import save  # noqa: E402

NOBODY = 65534
scratch = tempfile.TemporaryDirectory(prefix="dcp_unreadable.")
os.chmod(scratch.name, 0o755)


def inspect(*args):
    """As a user whom the folder's owner has not let in."""
    def leave():
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
    done = subprocess.run(["dcp-inspect", *args], preexec_fn=leave, capture_output=True, text=True,
                          check=False)
    return done.returncode, done.stdout, done.stderr


try:
    can_start = inspect("--version")[0] == 0
except PermissionError:
    can_start = False
if not can_start:
    print("another user can't start the programs of this build")
    sys.exit(77)

for layout in "global", "sharded:2:0":
    ckpt = f"{scratch.name}/{layout[:6]}"
    step = save(ckpt, 1, {"/model/w": np.arange(3000.0)}, {}, layout)
    assert inspect("verify", ckpt)[0] == 0, inspect("verify", ckpt)
    # its owner may enter it unless root is not the one who looks
    os.chmod(step, 0o744 if os.getuid() == 0 else 0o644)
    status, out, err = inspect("verify", ckpt)
    assert status == 3 and "Permission denied" in err and "DAMAGED" not in out, (status, out, err)
    status, out, err = inspect("verify", ckpt, "--json")
    assert status == 3 and "damaged" not in err and "is missing" not in err, (status, out, err)
    assert json.loads(out)["intact"] is None and not json.loads(out)["damage"], out
    status, out, err = inspect("ls", ckpt, "--json")
    row = json.loads(out)["steps"][0]
    assert status == 3 and row["state"] == "unreadable" and "Permission denied" in row["damage"], out
    status, out, err = inspect("show", ckpt)
    assert status == 3 and "Permission denied" in err and "missing" not in err, (status, out, err)
    os.chmod(step, 0o755)
    assert inspect("verify", ckpt)[0] == 0
