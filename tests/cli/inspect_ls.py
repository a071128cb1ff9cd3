#!/usr/bin/env -S python3 -B
"""dcp-inspect ls: the state of each step, judged by its files' sizes and user blocks, with --verify by every byte;
damage has a reason."""
import os
import re
import shutil

import numpy as np

from states import cases, flip, inspect, run, save

STEPS = ((1, "global"), (2, "sharded:3:0"), (3, "global"), (4, "sharded:2:0"))


@cases.shared
def made():
    """Makes the directory "c" of four steps."""
    state = {f"/model/w{i}": np.arange(3000.0) for i in range(3)}
    for step, layout in STEPS:
        save("c", step, state, {}, layout)


def content(path):
    with open(path, "rb") as f:
        return f.read()


def table(*args, **how):
    """Returns the text without ages, which grow."""
    return re.sub(r" +\d+ s\b", "", run("ls", "c", *args, **how))


def test_each_step_is_described():
    cases.use(made)
    found = inspect("ls", "c")
    assert found["dir"] == "c" and [s["step"] for s in found["steps"]] == [1, 2, 3, 4]
    for s, layout, files in zip(found["steps"], ("global", "sharded") * 2, (1, 3, 1, 2)):
        folder = f"c/{s['name']}"
        assert set(s) == {"name", "step", "state", "layout", "files", "bytes", "tensors", "ranks", "age_s",
                          "survives", "domains", "damage"} and s["survives"] is s["domains"] is None
        assert (s["state"], s["layout"], s["files"], s["tensors"]) == ("complete", layout, files, 3), s
        assert s["ranks"] == files and 0 <= s["age_s"] < 600 and s["damage"] is None
        assert s["bytes"] == sum(os.path.getsize(f"{folder}/{f}") for f in os.listdir(folder))


def test_the_table_is_one_for_intact_steps():
    cases.use(made)
    text = table()
    assert text.splitlines()[2].split()[:3] == ["step-00000002", "complete", "sharded"]
    assert table("--verify") == text
    assert table(ranks=2) == text


def check_broken(step, change, reason):
    """The change that `change` makes to the step's folder damages the step, with that reason. Restores the folder."""
    folder = f"c/{step}"
    shutil.copytree(folder, "kept")
    try:
        change(folder)
        for args, expected in ([], 0), (["--verify"], 1):
            found = {s["name"]: s for s in inspect("ls", "c", *args, status=expected)["steps"]}[step]
            assert found["state"] == "damaged" and reason in found["damage"], (found, reason)
            assert reason in run("ls", "c", *args, status=expected)
    finally:
        shutil.rmtree(folder)
        os.rename("kept", folder)


def put(name, data):
    def change(folder):
        with open(f"{folder}/{name}", "wb") as f:
            f.write(data)
    return change


def test_damage_of_a_state_file():
    cases.use(made)
    intact = content("c/step-00000001/state.h5")
    shard = content("c/step-00000004/shard-00001-of-00002.h5")
    for what, change, reason in (
            ("cut", put("state.h5", intact[:-4096]), "size"),
            ("longer", put("state.h5", intact + b"x"), "size"),
            ("empty", put("state.h5", b""), "less than a user block"),
            ("zeros", put("state.h5", bytes(len(intact))), "wrong magic"),
            ("shard", put("state.h5", shard), "its layout is not that of"),
            ("flipped", lambda d: flip(f"{d}/state.h5", 100), "user block: its checksum"),
            ("gone", lambda d: os.remove(f"{d}/state.h5"), "state.h5 is missing")):
        with cases.part(what):
            check_broken("step-00000001", change, reason)


def test_damage_of_about_json():
    cases.use(made)
    for what, change, reason in (
            ("gone", lambda d: os.remove(f"{d}/about.json"), "about.json is missing"),
            ("flipped", lambda d: flip(f"{d}/about.json", 20), "about.json: the checksum"),
            ("another step's", lambda d: shutil.copy("c/step-00000003/about.json", d),
             "about.json: it belongs to step 3, not 1")):
        with cases.part(what):
            check_broken("step-00000001", change, reason)


def test_damage_of_a_shard():
    cases.use(made)
    for what, change, reason in (
            ("gone", lambda d: os.remove(f"{d}/shard-00001-of-00003.h5"), "shard-00001-of-00003.h5 is missing"),
            ("cut", lambda d: os.truncate(f"{d}/shard-00002-of-00003.h5", 8192), "size")):
        with cases.part(what):
            check_broken("step-00000002", change, reason)


def test_a_symbolic_link_is_damage():
    cases.use(made)
    os.mkdir("elsewhere")
    target = os.path.abspath("elsewhere/s")
    check_broken("step-00000003", lambda d: [os.rename(f"{d}/state.h5", target), os.symlink(target, f"{d}/state.h5")],
                 "a symbolic link")


def test_only_verify_looks_at_tables_and_tensors():
    cases.use(made)
    text = table()
    flip("c/step-00000001/state.h5", os.path.getsize("c/step-00000001/state.h5") // 2)
    assert table() == text
    found = inspect("ls", "c", "--verify", status=1)["steps"]
    assert [s["state"] for s in found] == ["damaged"] + ["complete"] * 3 and "state.h5" in found[0]["damage"]


def add_odd_folders():
    """Sets step 4 aside as abandoned, and adds a partial step and folders that are no steps."""
    os.rename("c/step-00000004", "c/.abandoned-step-00000004")
    shutil.copytree("c/step-00000001", "c/.tmp-step-00000005")
    os.remove("c/.tmp-step-00000005/about.json")
    os.mkdir("c/step-12")
    os.mkdir("c/.trash-step-00000009")


def test_abandoned_and_partial_steps():
    cases.use(made)
    add_odd_folders()
    states = {s["name"]: s for s in inspect("ls", "c")["steps"]}
    assert {n: s["state"] for n, s in states.items()} == {
        "step-00000001": "complete", "step-00000002": "complete", "step-00000003": "complete",
        ".abandoned-step-00000004": "abandoned", ".tmp-step-00000005": "partial"}
    assert states[".tmp-step-00000005"]["ranks"] is None and states[".tmp-step-00000005"]["age_s"] < 600


def test_an_abandoned_step_has_its_damage():
    cases.use(made)
    add_odd_folders()
    flip("c/.abandoned-step-00000004/shard-00000-of-00002.h5", 8)
    found = inspect("ls", "c")["steps"][-2]
    assert found["state"] == "abandoned" and "format version" in found["damage"] or "checksum" in found["damage"]


def test_the_age_is_about_jsons_time_not_the_files():
    cases.use(made)
    os.utime("c/step-00000001/about.json", (0, 0))
    assert inspect("ls", "c")["steps"][0]["age_s"] < 600
    assert inspect("ls", "c", "--verify")["steps"][0]["age_s"] < 600


def test_an_empty_directory():
    os.mkdir("empty")
    assert run("ls", "empty") == "" and "holds no steps" in run.said
    assert inspect("ls", "empty") == {"dir": "empty", "steps": []}


def test_wrong_arguments_are_refused():
    cases.use(made)
    for args in ([], ["a", "b"], ["nowhere"], ["c/step-00000001/state.h5"], ["c", "--frob"]):
        with cases.part(" ".join(args)):
            run("ls", *args, status=2)


cases.main()
