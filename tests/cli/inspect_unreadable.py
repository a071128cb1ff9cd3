#!/usr/bin/env -S python3 -B
"""A step's folder that another user may list but not enter (chmod 744) is unreadable, not damaged: dcp-inspect
says so, with exit status 3."""
import functools
import json
import os
import subprocess

import numpy as np

from states import cases, save, scratch

NOBODY = 65534
LAYOUTS = "global", "sharded:2:0"
os.chmod(scratch, 0o755)


def inspect(*args):
    """Runs dcp-inspect as a user who has no access to the folder."""
    def leave():
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
    done = subprocess.run(["dcp-inspect", *args], preexec_fn=leave, capture_output=True, text=True,
                          check=False)
    return done.returncode, done.stdout, done.stderr


@functools.cache
def can_start():
    try:
        return inspect("--version")[0] == 0
    except PermissionError:
        return False


def make(layout):
    """Saves a step. Returns the directory and the step's folder."""
    if not can_start():
        cases.skip("another user can't start the programs of this build")
    directory = os.path.abspath(layout[:6])
    return directory, save(directory, 1, {"/model/w": np.arange(3000.0)}, {}, layout)


def make_unreadable(layout):
    """Saves a step whose folder can't be entered until the case ends. Returns the directory and the step's folder."""
    directory, step = make(layout)
    # root reads it as another user; otherwise the reader is the owner
    os.chmod(step, 0o744 if os.getuid() == 0 else 0o644)
    cases.at_end(os.chmod, step, 0o755)
    return directory, step


def test_verify_is_denied():
    for layout in LAYOUTS:
        with cases.part(layout):
            status, out, err = inspect("verify", make_unreadable(layout)[0])
            assert status == 3 and "Permission denied" in err and "DAMAGED" not in out, (status, out, err)


def test_verify_json_leaves_it_open():
    for layout in LAYOUTS:
        with cases.part(layout):
            status, out, err = inspect("verify", make_unreadable(layout)[0], "--json")
            assert status == 3 and "damaged" not in err and "is missing" not in err, (status, out, err)
            assert json.loads(out)["intact"] is None and not json.loads(out)["damage"], out


def test_ls_lists_the_step_as_unreadable():
    for layout in LAYOUTS:
        with cases.part(layout):
            status, out, err = inspect("ls", make_unreadable(layout)[0], "--json")
            row = json.loads(out)["steps"][0]
            assert status == 3 and row["state"] == "unreadable" and "Permission denied" in row["damage"], out


def test_show_is_denied():
    for layout in LAYOUTS:
        with cases.part(layout):
            status, out, err = inspect("show", make_unreadable(layout)[0])
            assert status == 3 and "Permission denied" in err and "missing" not in err, (status, out, err)


def test_a_step_that_can_be_entered_is_intact():
    for layout in LAYOUTS:
        with cases.part(layout):
            directory, step = make(layout)
            assert inspect("verify", directory)[0] == 0, inspect("verify", directory)
            os.chmod(step, 0o744 if os.getuid() == 0 else 0o644)
            assert inspect("verify", directory)[0] == 3
            os.chmod(step, 0o755)
            assert inspect("verify", directory)[0] == 0, inspect("verify", directory)


cases.main()
