#!/usr/bin/env -S python3 -B
"""dcp-inspect verify finds the same damage on one rank and on several: each damaged block by tensor, number and
bytes, and each damaged structure by name, in files of many chunks, and in layouts whose shards are not
contiguous parts of their tensors."""
import functools
import os
import re
import shutil

import h5py
import numpy as np

from states import cases, flip, inspect, run, save

BLOCK = 4 << 20
LAYOUTS = "global", "sharded:3:0", "sharded:2:1"


@functools.cache
def state():
    rng = np.random.default_rng(6)
    return {"/model/big": rng.standard_normal((3001, 2003), dtype=np.float32),  # 24 MB
            "/model/bytes": rng.integers(0, 255, 77, dtype=np.uint8), "/model/scalar": np.float32(1),
            "/model/empty": np.zeros((0, 3), np.float32), "/model/z": rng.standard_normal((40, 50))}


@cases.shared
def steps():
    """Makes a step in each layout; its number is the layout's."""
    return {layout: os.path.abspath(save(f"c{i}", i, state(), {}, layout)) for i, layout in enumerate(LAYOUTS)}


def own(layout, folder="own"):
    """Copies a step, so the case may damage it."""
    step = steps()[layout]
    return shutil.copytree(step, os.path.join(folder, os.path.basename(step)))


def look(step, status=1):
    return run("verify", step, status=status).splitlines()


def places(file):
    with h5py.File(file) as f:
        return {row["path"].decode(): (int(row["offset"]), int(row["bytes"])) for row in f["dcp/index"][:]}


def test_intact_steps():
    for step in steps().values():
        with cases.part(step):
            size = sum(os.path.getsize(f"{step}/{f}") for f in os.listdir(step) if f.endswith(".h5"))
            assert re.fullmatch(r".*: intact, [0-9.]+ MB checked", look(step, 0)[0])
            assert inspect("verify", step) == {"path": step, "intact": True, "bytes": size, "damage": []}
            assert inspect("verify", step, ranks=3) == inspect("verify", step)


def check_damage(layout):
    """Damaged blocks are named, and so is damaged metadata; a file whose flips are undone is intact."""
    step = own(layout)
    file = f"{step}/" + ("state.h5" if layout == "global" else "shard-00001-of-0000%s.h5" % layout[8])
    at = places(file)
    big, length = at["/model/big"]
    last = length // BLOCK
    flips = [big, big + BLOCK - 1, big + BLOCK, big + length - 1, at["/model/z"][0] + 5, os.path.getsize(file) - 3]
    for f in flips:
        flip(file, f)
    # the last byte of a file is padding, in a page that belongs to meta
    lines = look(step)
    assert lines[-1] == f"{step}: DAMAGED, {len(lines) - 1} place" + "s" * (len(lines) > 2), lines
    if "meta: its checksum" in lines[0]:  # nothing else in the file can be trusted then
        flip(file, flips.pop())
        lines = look(step)
    want = [f"{file}: tensor /model/big, block 0 (bytes 0 to 4194304): damaged",
            f"{file}: tensor /model/big, block 1 (bytes 4194304 to {min(length, 2 * BLOCK)}): damaged",
            f"{file}: tensor /model/big, block {last} (bytes {last * BLOCK} to {length}): damaged",
            f"{file}: tensor /model/z, block 0 (bytes 0 to {at['/model/z'][1]}): damaged"]
    assert lines[:-1] == sorted(set(want), key=want.index), (lines, want)
    assert run("verify", step, status=1, ranks=3).splitlines() == lines
    assert inspect("verify", step, status=1)["damage"] == lines[:-1]
    for f in flips[:5]:
        flip(file, f)
    flip(file, 5000)  # HDF5's metadata
    assert "HDF5 metadata or padding" in look(step)[0]
    flip(file, 5000)
    assert "intact" in run("verify", step)


def test_damage_of_one_file():
    check_damage("global")


def test_damage_of_shards_by_rows():
    check_damage("sharded:3:0")


def test_damage_of_shards_by_columns():
    check_damage("sharded:2:1")


def test_shards_of_different_states_are_damage():
    """Each shard is right by itself."""
    step = own("sharded:2:1")
    changed = {**state(), "/model/z": state()["/model/z"].copy()}
    changed["/model/z"][20:] += 1
    other = save("other", 2, changed, {}, "sharded:2:1")
    os.replace(f"{other}/shard-00001-of-00002.h5", f"{step}/shard-00001-of-00002.h5")
    assert "belongs to another state than" in look(step)[0]


def make_directory():
    """Makes the directory "both" with two steps and the beginning of another one."""
    for layout in LAYOUTS[:2]:
        own(layout, "both")
    os.mkdir("both/.tmp-step-00000007")


def test_all_steps_of_a_directory():
    make_directory()
    for ranks in 0, 3:
        with cases.part(f"{ranks} ranks"):
            found = inspect("verify", "both", "--all", ranks=ranks)
            assert found["intact"] and [s["intact"] for s in found["steps"]] == [True, True]


def test_all_steps_of_which_one_is_damaged():
    make_directory()
    flip("both/step-00000000/state.h5", 4096)
    for ranks in 0, 3:
        with cases.part(f"{ranks} ranks"):
            found = inspect("verify", "both", "--all", ranks=ranks, status=1)
            assert [s["intact"] for s in found["steps"]] == [False, True]
    assert run("verify", "both", "--all", status=1).count("intact") == 1


def test_the_beginning_of_a_step_lacks_its_file():
    make_directory()
    assert "state.h5 is missing" in run("verify", "both/.tmp-step-00000007", status=1)


def test_what_holds_no_steps_is_refused():
    for ranks in 0, 3:
        with cases.part(f"{ranks} ranks"):
            assert run("verify", "nowhere", ranks=ranks, status=2) == ""
    os.makedirs("none/other")
    assert run("verify", "none", "--all", status=2) == ""


cases.main()
