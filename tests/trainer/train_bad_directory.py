#!/usr/bin/env python3
"""A checkpoint directory that cannot be used, is in use, or runs full gives one clear line and the right exit status. A
save that fails leaves older steps, and training continues."""
import contextlib, glob, os, re, shutil, signal, subprocess
from train_lib import (BIN, cases, check, config, losses, make_text, messages, metrics, Run, state,
                       step_path, steps, tool, train, TRAINER)

@contextlib.contextmanager
def mounted(path, options):
    """Mounts a tmpfs. Skips the case if this process may not mount."""
    os.mkdir(path)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path],
                          capture_output=True)
    if done.returncode != 0:
        cases.skip("mounting a file system is not permitted")
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


def refused(ranks, text, *args, expect=2):
    _, err = train(ranks, *args, expect=expect)
    told = [m for m in messages(err) if text in m]
    check(len(told) == 1 and told[0] == messages(err)[-1], f"\"{text}\" is not told last: {err}")


def test_a_path_below_a_file_is_refused():
    make_text()
    for ranks in (1, 3):
        refused(ranks, "checkpoint.dir: ", config(checkpoint={"dir": "text/below"}))


def test_a_dangling_link_is_refused():
    make_text()
    os.symlink("nowhere", "link")
    for more in ([], ["--dry-run"]):
        refused(1, "link: it is a symbolic link whose target does not exist", config(checkpoint={"dir": "link"}), *more,
                expect=3)
        refused(1, "metrics: link is a symbolic link to a missing file", config(metrics="link"), *more)
    check(not os.path.lexists("nowhere"), "what the link names was made")


def test_a_second_trainer_names_the_first_which_continues():
    make_text()
    endless = config("endless.json", max_steps=1000000, scheduler={"type": "constant"},
                     checkpoint={"dir": "used", "every": 0})
    first = Run(2, endless)
    first.wait_for(lambda: os.path.exists("metrics.jsonl") and len(metrics()) > 0, "a first step")
    holder = open("used/.lock").read().split()[-1]
    check(int(holder) in first.pids(), f"{holder} is not one of {first.pids()}")
    for ranks in (1, 2):
        refused(ranks, f"process {holder} on host", endless, "metrics=second.jsonl")
        refused(ranks, f"process {holder} on host", endless, "metrics=second.jsonl", "--dry-run")
    check(f"checkpoint.dir: used is in use by another writer, process {holder} on" in tool("dcp-train", endless, "--plan"),
          "--plan does not name the holder")
    check(first.process.poll() is None, "the first trainer has ended")
    os.kill(first.pids()[0], signal.SIGTERM)
    check(first.wait() == 143, "the first trainer does not end")


def test_a_read_only_directory_is_refused():
    make_text()
    with mounted("readonly", "ro,size=1m") as path:
        for ranks in (1, 3):
            refused(ranks, "checkpoint.dir: ", config(checkpoint={"dir": f"{path}/ckpt"}))
            refused(ranks, "checkpoint.dir: cannot write to ", config(checkpoint={"dir": f"{path}/ckpt"}), "--dry-run")
        plan = tool("dcp-train", config(checkpoint={"dir": f"{path}/ckpt"}), "--plan")
        check(f"checkpoint.dir: cannot write to {path}/ckpt" in plan, plan)


@cases.shared
def whole_run():
    make_text()
    # Returns the configuration, and the size of one step in bytes.
    whole = config("whole.json", checkpoint={"dir": "whole"}, metrics="whole.jsonl")
    train(1, whole)
    size = sum(os.path.getsize(f"{step_path(12, 'whole')}/{f}") for f in ("state.h5", "about.json"))
    return whole, size


def test_old_steps_are_given_up_for_new_ones():
    whole, size = cases.use(whole_run)
    # There is room for two and a half steps. The third one is not saved; the next saves give up old steps. The last step
    # of a run that saves nothing before it is saved, too.
    with mounted("two", f"size={int(2.5 * size) // 4096 * 4}k") as path:
        full = config("full.json", checkpoint={"dir": f"{path}/ckpt", "keep": 3})
        _, err = train(1, full, "--dry-run")
        told = [m for m in messages(err) if "warning: checkpoint.dir: a step takes" in m]
        check(len(told) == 1 and "fewer steps will be kept" in told[0], err)
        plan = tool("dcp-train", full, "--plan")
        check(re.search(r"checkpoint.dir +\d+\.\d+ +4 .*  fewer steps will be kept", plan), plan)
        plan = tool("dcp-train", full, "--plan", "checkpoint.keep=1")
        check(re.search(r"checkpoint.dir +\d+\.\d+ +2 .*  fits", plan), plan)
        said = float(re.search(r"checkpoint.dir +(\d+\.\d+)", plan)[1]) * 1048576
        check(0.97 < said / size < 1.03, f"a step of {size} bytes was said to take {said}")
        _, err = train(3, full)
        check("warning: step 3 is not saved: " in err and "the next save may remove old steps" in err, err)
        check("step-00000001 is given up to make room" in err and "could not be saved" not in err, err)
        check(steps(f"{path}/ckpt") == [11, 12] and state(12, f"{path}/ckpt") == state(12, "whole"), f"{err}")
        shutil.rmtree(f"{path}/ckpt")
        train(2, full, "max_steps=2", "metrics=null")
        _, err = train(2, full, "max_steps=3", "metrics=null")  # its only save is the last one
        check(steps(f"{path}/ckpt") == [2, 3] and "is not saved" not in err, err)
        plan = tool("dcp-train", full, "--plan", "checkpoint.keep=1")  # a step is saved before older ones go
        check(re.search(r"checkpoint.dir +\d+\.\d+ +3 .*  fewer steps will be kept", plan), plan)


def test_without_room_for_a_second_step_training_continues():
    whole, size = cases.use(whole_run)
    # There is room for one and a half steps: no other step is saved until there is more room.
    with mounted("small", f"size={int(1.5 * size) // 4096 * 4}k") as path:
        full = config("full.json", checkpoint={"dir": f"{path}/ckpt"})
        _, err = train(1, full, "--dry-run")
        check("MB are free for more in" in err and "saves will fail until there is more" in err, err)
        _, err = train(3, full, expect=3)
        check("warning: step 2 is not saved: " in err and "training continues" in err, err)
        check(err.count(" is not saved: ") == 1, f"told more than once: {err}")
        check("step 12 could not be saved: " in err, err)
        check([line["step"] for line in metrics()] == list(range(1, 13)), "training did not go on")
        check(steps(f"{path}/ckpt") == [1], f"steps {steps(path + '/ckpt')}")
        check(not glob.glob(f"{path}/ckpt/.tmp*"), "a part of a step is left")
        tool("dcp-inspect", "verify", step_path(1, f"{path}/ckpt"))
        done = subprocess.run([f"{BIN}/dcp-run", "-n", "1", "--", TRAINER, full], capture_output=True, text=True)
        check(done.returncode == 3 and "dcp-run: start 3" not in done.stderr, done.stderr)
        check("and another restart would fail, too: there is no room for another step" in done.stderr, done.stderr)
        check(done.stdout.count("step 2/12 ") == 1 and "could not save what it computed" in done.stderr,
              f"the second start trains, too: {done.stdout}{done.stderr}")
        subprocess.run(["mount", "-o", "remount,size=64m", path], check=True)
        train(2, full)
        check(state(12, f"{path}/ckpt") == state(12, "whole"), "the state differs afterwards")
        check(losses() == losses("whole.jsonl"), "losses differ afterwards")


def test_metrics_continue_once_there_is_room():
    make_text()
    # Each line that is written is whole.
    with mounted("metrics", "size=8k") as path:
        lines = f"{path}/metrics.jsonl"
        run = Run(1, config(max_steps=1000000, checkpoint={"dir": "unsaved", "every": 0}, metrics=lines))
        run.wait_for(lambda: "lines are left out until one can be written" in run.text(run.err), "a full disk")
        subprocess.run(["mount", "-o", "remount,size=64m", path], check=True)
        run.wait_for(lambda: "metrics: lines are written again" in run.text(run.err), "lines once there is room")
        os.kill(run.pids()[0], signal.SIGTERM)
        check(run.wait() == 143 and run.text(run.err).count("are left out") == 1, run.text(run.err))
        told = [line["step"] for line in metrics(lines)]
        check(told[:3] == [1, 2, 3] and len(told) < told[-1] == max(steps("unsaved")), f"{told}")


def test_offload_takes_its_room_at_the_start():
    whole, _ = cases.use(whole_run)
    # It leaves nothing behind.
    offload = ["fsdp.cpu_offload=true", "checkpoint.dir=offloaded", "max_steps=1"]
    for dry in (), ("--dry-run",):
        _, err = train(2, whole, *offload, "fsdp.offload_path=nowhere", *dry, expect=2)
        check("fsdp.offload_path: cannot make a file in nowhere: No such file" in err, err)
    with mounted("tiny", "size=64k") as path:
        _, err = train(3, whole, *offload, f"fsdp.offload_path={path}", expect=3)
        check(f"bytes of a rank in {path}: No space left on device" in messages(err)[-1], err)
        check(not os.listdir(path), f"left behind: {os.listdir(path)}")
        check(not os.path.exists("offloaded"), "a directory of checkpoints is made")


cases.main()
