#!/usr/bin/env python3
"""If a file system lets files share bytes, a checkpoint at every step costs only what is trained: frozen parts of a talker
are stored once. dcp-inspect diff names the changed tensors; each step is whole, and equal to that on another disk."""
import json, os, subprocess, sys

sys.path.insert(0, f"{os.environ['DCP_SOURCE']}/tests/crash")
import crash_mounts

if not crash_mounts.enter_namespace():  # starts this program again, so it comes before train_lib makes a folder
    print("only root may mount an image, in a mount namespace of its own")
    sys.exit(77)
from recordings import make_recordings
from train_lib import BIN, cases, check, config, SOURCE, state, step_path, tool, train

STEPS = 6
TEXT = ["talker.model.text_embedding.*", "talker.text_projection.*"]


def used(at):
    os.sync()
    found = os.statvfs(at)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def tensors(command, *paths):
    done = subprocess.run([f"{BIN}/dcp-inspect", command, *paths, "--json", "--all"], capture_output=True, text=True)
    check(done.returncode in (0, 1), done.stderr)
    return json.loads(done.stdout)["tensors"]


def is_frozen(path):
    return path.startswith(("/model/talker.model.text_embedding.", "/model/talker.text_projection."))


@cases.shared
def plain():
    """Runs on the usual disk. Returns the size of a step in bytes."""
    with open(f"{SOURCE}/tests/data/golden/talker/config.json") as file:
        model = json.load(file)
    model["talker_config"] |= {"text_vocab_size": 8192, "text_hidden_size": 256}
    make_recordings("recordings.safetensors", 31)
    config(model=model, max_steps=STEPS, frozen=TEXT, scheduler={"type": "constant", "params": {}},
           data={"type": "speech", "path": "recordings.safetensors", "sequence_length": 32, "frames": 9})
    train(2, "config.json", "checkpoint.dir=plain")
    return os.path.getsize(f"{step_path(STEPS, 'plain')}/state.h5")


def check_steps_share(kind):
    """Checks a run on a file system of this kind."""
    size = cases.use(plain)
    os.makedirs(kind)
    try:
        at = crash_mounts.mount_image(kind, os.path.abspath(kind), "400M")
    except crash_mounts.Unavailable as why:
        cases.skip(f"no {kind}: {why}")
    cases.at_end(subprocess.run, ["umount", at])
    ckpt = f"{at}/ckpt"
    train(2, "config.json", f"checkpoint.dir={ckpt}", "max_steps=3")
    before = used(at)
    train(3, "config.json", f"checkpoint.dir={ckpt}")
    a_step = (used(at) - before) / (STEPS - 3)
    print(f"{kind}: {a_step:.0f} bytes more on the disk for a step of {size}")
    check(a_step < size / 4, f"{kind}: a step takes {a_step} bytes of {size}")
    for step in range(1, STEPS + 1):
        check(state(step, ckpt) == state(step, "plain"), f"{kind}: step {step} has other bytes")
    tool("dcp-inspect", "verify", step_path(STEPS, ckpt))
    moved = {t["path"]: t["status"] for t in tensors("diff", step_path(STEPS - 1, ckpt), step_path(STEPS, ckpt))}
    check(moved and all((found == "same") == is_frozen(path) for path, found in moved.items()), f"{kind}: {moved}")
    check(sum(map(is_frozen, moved)) == 5, f"{kind}: {moved}")


def test_steps_on_xfs_share_frozen_parts():
    check_steps_share("xfs")


def test_steps_on_btrfs_share_frozen_parts():
    check_steps_share("btrfs")


cases.main()
