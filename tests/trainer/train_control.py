#!/usr/bin/env python3
"""dcp-run ctl while dcp-train trains: the reported status is true; a save exists when its request is answered; a run
on 4, 8, 3 and 4 ranks computes each step once and ends as an undisturbed run does; stop saves. The socket is in the
checkpoint directory: nothing that removes or lists steps touches it, and it goes with the run."""
import json, os, signal, subprocess, tempfile, threading, time
from train_lib import (BIN, cases, check, config, fail, losses, make_text, state, steps, TIMEOUT,
                       tool, train, TRAINER)

LAST = 60


class Supervised:
    """dcp-run in the background."""

    def __init__(self, ranks, *args, options=(), before=()):
        self.err = tempfile.TemporaryFile()
        self.process = subprocess.Popen([f"{BIN}/dcp-run", "-n", str(ranks), *options, "--", *before, TRAINER,
                                         *map(str, args)],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.err)
        cases.at_end(lambda: self.process.poll() is None and self.process.kill())  # if the case fails

    def said(self):
        self.err.seek(0)
        return self.err.read().decode(errors="replace")

    def wait_for(self, condition, what):
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                fail(f"waited in vain for {what}: {self.said()}")
            time.sleep(0.005)

    def ends(self, expect):
        try:
            status = self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            fail(f"hangs: {self.said()}")
        check(status == expect, f"dcp-run: exit {status}, not {expect}: {self.said()}")


def ask(directory, *words):
    return subprocess.run([f"{BIN}/dcp-run", "ctl", f"{directory}/.control", *map(str, words)],
                          capture_output=True, text=True, timeout=TIMEOUT)


def ctl(directory, *words, expect=0):
    """Returns the answer."""
    done = ask(directory, *words)
    check(done.returncode == expect, f"ctl {words}: exit {done.returncode}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout) if expect == 0 else done.stderr


def answers_as(directory, pid):
    """Returns true if the process with this pid answers."""
    done = subprocess.run([f"{BIN}/dcp-run", "ctl", f"{directory}/.control", "status"], capture_output=True, text=True,
                          timeout=TIMEOUT)
    return done.returncode == 0 and json.loads(done.stdout)["pid"] == pid


def is_socket(directory):
    return os.path.exists(f"{directory}/.control") and not os.path.isfile(f"{directory}/.control")


slow = {"type": "constant", "params": {"warmup_steps": 0}}


def settings(directory, **checkpoint):
    return config(f"{directory}.json", max_steps=LAST, scheduler=slow, metrics=f"{directory}.jsonl",
                  checkpoint={"dir": directory, "every": 1000, **checkpoint})


def test_a_resized_run_ends_as_an_undisturbed_one():
    make_text()
    run = Supervised(4, settings("ckpt"), f"max_steps={100 * LAST}")
    run.wait_for(lambda: is_socket("ckpt"), "the socket")
    while ctl("ckpt", "status")["step"] < 1:  # ranks that are not set up yet must not die of it
        asked = ask("ckpt", "save")
        check(asked.returncode in (0, 3) and "sent" not in asked.stdout, f"an early save: {asked}")
    shown = ctl("ckpt", "status")
    check(shown["ranks"] == 4 and shown["state"] == "running" and shown["pid"] == run.process.pid, f"{shown}")
    for ranks in (8, 3, 4):
        saved = ctl("ckpt", "save")["step"]
        check(saved in steps(), f"step {saved} is told saved, and {steps()} are there")
        check(ctl("ckpt", "resize", ranks)["ranks"] == ranks, f"resize {ranks}")
        shown = ctl("ckpt", "status")
        check(shown["ranks"] == ranks and len(shown["members"]) == ranks, f"after resize {ranks}: {shown}")
    ctl("ckpt", "stop")
    run.ends(143)
    check(shown["failures"] == 0 and shown["planned"] == 3, f"{shown}")
    end = max(steps())
    train(4, settings("ckpt"), f"max_steps={end + LAST}")
    train(2, settings("whole"), f"max_steps={end + LAST}")
    whole = state(end + LAST, "whole"), losses("whole.jsonl")
    check(len(whole[1]) == end + LAST, "the undisturbed run lacks lines")
    check((state(end + LAST), losses("ckpt.jsonl")) == whole, f"another end than the undisturbed run's: {run.said()}")
    check(not os.path.exists("ckpt/.control"), "the socket is left")


def test_saves_and_second_runs_leave_the_socket_alone():
    make_text()
    # Steps are saved and removed beside it. A second run is refused, and removes nothing.
    run = Supervised(2, settings("busy", every=1, keep=1), f"max_steps={100 * LAST}")
    run.wait_for(lambda: is_socket("busy") and len(steps("busy")) > 0 and max(steps("busy")) > 5, "steps")
    inode = os.stat("busy/.control").st_ino
    second = Supervised(2, settings("busy"))
    second.ends(2)
    check(f"process {run.process.pid} on " in second.said(), second.said())
    check(".control" not in tool("dcp-inspect", "ls", "busy"), "listed as a step")
    answers = []
    clients = [threading.Thread(target=lambda: answers.append(ctl("busy", "save")["step"])) for _ in range(8)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    check(len(answers) == 8, f"8 saves at once: {answers}")
    check(os.stat("busy/.control").st_ino == inode, "the socket is another one")
    check(ctl("busy", "stop")["state"] == "stopping", "stop")
    run.ends(143)
    check(not os.path.exists("busy/.control"), "the socket is left")


def test_a_resize_that_ranks_refuse_leaves_the_run_as_it_was():
    make_text()
    # It continues on as many ranks as before.
    run = Supervised(2, settings("pairs"), "fsdp.replicas=2", f"max_steps={100 * LAST}")
    run.wait_for(lambda: is_socket("pairs") and ctl("pairs", "status")["step"] > 1, "steps")
    check("refuse the number 3" in ctl("pairs", "resize", 3, expect=3), "a resize that the ranks refuse")
    run.wait_for(lambda: ctl("pairs", "status")["state"] == "running", "the ranks as before")
    check(ctl("pairs", "status")["ranks"] == 2, "other ranks than before")
    ctl("pairs", "stop")
    run.ends(143)


def test_a_resize_waits_for_ranks_beyond_the_grace_period():
    make_text()
    # A step or an evaluation may take longer, and no step is lost.
    run = Supervised(2, settings("long"), f"max_steps={100 * LAST}", options=("--grace", "0"))
    run.wait_for(lambda: is_socket("long") and ctl("long", "status")["step"] > 1, "steps")
    ranks = [rank["pid"] for rank in ctl("long", "status")["members"]]
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)
    resize = subprocess.Popen([f"{BIN}/dcp-run", "ctl", "long/.control", "resize", "3"], stderr=subprocess.DEVNULL)
    run.wait_for(lambda: ctl("long", "status")["state"] != "running", "the request")
    for _ in range(10):
        check(ctl("long", "status")["state"] == "resizing", run.said())
    for pid in ranks:
        os.kill(pid, signal.SIGCONT)
    check(resize.wait(TIMEOUT) == 0, run.said())
    shown = ctl("long", "status")
    check(shown["ranks"] == 3 and shown["failures"] == 0 and "killing" not in run.said(), f"{shown} {run.said()}")
    run.process.kill()
    run.process.wait()


def test_a_step_in_memory_is_saved_before_the_run_ends_for_a_requeue():
    make_text()
    # The step has just been saved in memory when the run is asked to end; afterwards it is in checkpoint.dir.
    run = Supervised(2, settings("moved", stores=[{"path": "moved-memory", "every": 1000, "keep": 2}]),
                     f"max_steps={100 * LAST}")
    run.wait_for(lambda: is_socket("moved") and ctl("moved", "status")["step"] > 1, "steps")
    resize = subprocess.Popen([f"{BIN}/dcp-run", "ctl", "moved", "resize", "3"], stderr=subprocess.DEVNULL)
    run.wait_for(lambda: os.path.exists("moved-memory") and steps("moved-memory"), "a step in memory")
    os.kill(run.process.pid, signal.SIGUSR2)
    run.ends(75)
    resize.wait(TIMEOUT)
    check(max(steps("moved")) >= max(steps("moved-memory")), f"{steps('moved')}, in memory {steps('moved-memory')}: {run.said()}")


@cases.shared
def text():
    make_text()


def resize_into_memory(name, *over):
    """Starts a run whose step is handed over in memory. Returns it, and the client that has requested the resize; dcp-run
    is stopped, and its ranks have ended."""
    cases.use(text)
    run = Supervised(2, settings(name, stores=[{"path": f"{name}-memory", "every": 1000, "keep": 2}]),
                     f"max_steps={100 * LAST}", *over)
    run.wait_for(lambda: is_socket(name) and ctl(name, "status")["step"] > 1, "steps")
    ranks = [rank["pid"] for rank in ctl(name, "status")["members"]]
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)
    resize = subprocess.Popen([f"{BIN}/dcp-run", "ctl", name, "resize", "3"], stderr=subprocess.DEVNULL)
    run.wait_for(lambda: "resize: asking the ranks" in run.said(), "the request")
    os.kill(run.process.pid, signal.SIGSTOP)
    for pid in ranks:
        os.kill(pid, signal.SIGCONT)
    run.wait_for(lambda: "is handed over to other ranks" in run.said(), "the hand-over")
    check(steps(name) == [] and len(steps(f"{name}-memory")) == 1, f"{steps(name)}: {run.said()}")
    return run, resize


def is_saved_at_the_end(name, run, resize):
    run.ends(143)
    resize.wait(TIMEOUT)
    check(steps(name) == steps(f"{name}-memory"), f"{steps(name)}, in memory {steps(f'{name}-memory')}: {run.said()}")


def test_a_step_in_memory_is_saved_before_the_run_is_stopped():
    # SIGTERM comes when the ranks have ended, or are about to.
    run, resize = resize_into_memory("late")
    os.kill(run.process.pid, signal.SIGTERM)
    os.kill(run.process.pid, signal.SIGCONT)
    is_saved_at_the_end("late", run, resize)


def test_a_step_in_memory_is_saved_although_the_number_of_ranks_is_refused():
    run, resize = resize_into_memory("odd", "fsdp.replicas=2")
    os.kill(run.process.pid, signal.SIGTERM)
    os.kill(run.process.pid, signal.SIGCONT)
    is_saved_at_the_end("odd", run, resize)
    check("refuse the number 3" in run.said(), run.said())


def test_a_step_in_memory_is_saved_by_ranks_that_are_stopped_as_they_start():
    run, resize = resize_into_memory("early")
    os.kill(run.process.pid, signal.SIGCONT)
    run.wait_for(lambda: "dcp-run: start 2, planned" in run.said(), "the next start")
    os.kill(run.process.pid, signal.SIGTERM)
    is_saved_at_the_end("early", run, resize)


def test_a_run_continues_after_its_supervisor_was_killed():
    make_text()
    # It is started again at once, from an earlier step, so later ones are set aside.
    run = Supervised(2, settings("busy", every=1, keep=3), f"max_steps={100 * LAST}")
    run.wait_for(lambda: max(steps("busy"), default=0) > 6, "more steps")
    run.process.kill()
    run.process.wait()
    check(is_socket("busy"), "nothing is left of the killed one: this test tries nothing")
    back = sorted(steps("busy"))[-2]  # its ranks may still remove the oldest
    run = Supervised(2, settings("busy", every=1, keep=3, resume=f"busy/step-{back:08d}"), f"max_steps={100 * LAST}")
    run.wait_for(lambda: answers_as("busy", run.process.pid), "the second one")
    run.wait_for(lambda: ctl("busy", "status")["step"] > back + 5, "steps after going back")
    ranks = [rank["pid"] for rank in ctl("busy", "status")["members"]]
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)
    ctl("busy", "stop")
    late = subprocess.Popen([f"{BIN}/dcp-run", "ctl", "busy", "resize", "3"], stderr=subprocess.PIPE, text=True)
    for _ in range(10):
        check(ctl("busy", "status")["state"] == "stopping", "it does not stop")
    for pid in ranks:
        os.kill(pid, signal.SIGCONT)
    run.ends(143)
    said = late.communicate(timeout=TIMEOUT)[1]
    check(late.returncode in (2, 3), f"resized while it stops: exit {late.returncode}: {said}")


def test_a_run_started_by_another_program_answers():
    make_text()
    # The file begins with a byte order mark, as Windows editors write it.
    marked = settings("started")
    with open(marked) as file:
        text = file.read()
    with open(marked, "w", encoding="utf-8-sig") as file:
        file.write(text)
    run = Supervised(2, marked, f"max_steps={100 * LAST}", before=("env", "NAME=value"))
    run.wait_for(lambda: is_socket("started"), "the socket")
    run.wait_for(lambda: ctl("started", "status")["step"] > 1, "steps")
    check(ctl("started", "save")["step"] in steps("started"), f"{steps('started')}")
    ctl("started", "stop")
    run.ends(143)


def test_a_save_requested_during_a_resize_is_answered():
    make_text()
    # The ranks are about to end; what they save then answers the request.
    run = Supervised(2, settings("started"), f"max_steps={100 * LAST}")
    run.wait_for(lambda: is_socket("started"), "the socket")
    run.wait_for(lambda: ctl("started", "status")["step"] > 1, "steps")
    ctl("started", "save")
    saved = max(steps("started"))
    ranks = [rank["pid"] for rank in ctl("started", "status")["members"]]
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)
    asked = [subprocess.Popen([f"{BIN}/dcp-run", "ctl", "started/.control", *words], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) for words in (["save"], ["resize", "3"])]
    while ctl("started", "status")["state"] == "running":
        time.sleep(0.01)
    for pid in ranks:
        os.kill(pid, signal.SIGCONT)
    (save, save_err), (_, resize_err) = (process.communicate(timeout=TIMEOUT) for process in asked)
    check(asked[1].returncode == 0, f"resize: {resize_err}")
    is_late = "not started yet, or have ended" in save_err  # it came when they had ended
    check(asked[0].returncode == 3 if is_late else json.loads(save)["step"] > saved,
          f"after step {saved}: {save}{save_err}")
    ctl("started", "stop")
    run.ends(143)


cases.main()
