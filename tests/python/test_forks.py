"""Children of fork, such as DataLoader's workers, while saves are in flight: they read, save and end. A child that
hangs is ended by its alarm, which makes the test fail."""

import copy
import itertools
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
import time
import unittest

import numpy as np

import libdcp

CHILDREN = 40
LIMIT_S = 60
CALL_S = 20  # for a call that does not wait
fork = multiprocessing.get_context("fork")


def read_opened(checkpoint: libdcp.Checkpoint, directory: str, number: int) -> bool:
    return bool(np.all(checkpoint["/model/w3"] == 3))


def open_and_read(checkpoint: libdcp.Checkpoint, directory: str, number: int) -> bool:
    return bool(np.all(libdcp.Checkpoint(os.path.join(directory, "steps"))["/model/w3"] == 3))


def save(checkpoint: libdcp.Checkpoint, directory: str, number: int) -> bool:
    libdcp.save(os.path.join(directory, "other"), number, {"x": np.full(10, number)})
    return True


WORK = (read_opened, open_and_read, save)


def use_store(store: libdcp.Store, state: dict) -> list[str]:
    """Returns what a child's calls of its parent's store raise."""
    said = []
    for call in (lambda: store.save_async(90, state), lambda: store.save(91, state), lambda: store.load(state),
                 lambda: store.remove(1), lambda: store.continue_from(1)):
        try:
            call()
        except libdcp.Error as e:
            said.append(f"{e.status.name} {e}")
    return said


def end_of_child(call) -> int:
    """What waitpid says about a child that makes the call, and ends if libdcp refuses it."""
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(CALL_S)
        try:
            call()
        except libdcp.Error as e:
            os._exit(0 if e.status == libdcp.Status.STATE else 1)
        except BaseException:
            os._exit(2)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def work(pipe, number, *args):
    signal.alarm(LIMIT_S)
    pipe.send(WORK[number % len(WORK)](*args, number))
    pipe.close()


class Test(unittest.TestCase):
    def test_children_beside_saves_in_flight(self):
        with tempfile.TemporaryDirectory(prefix="dcp-forks-") as directory:
            state = {f"w{i}": np.full(5000, i, np.float32) for i in range(100)}
            ends = threading.Event()
            with libdcp.Store(os.path.join(directory, "steps"), keep=2) as store:
                store.save(1, state)
                checkpoint = libdcp.Checkpoint(os.path.join(directory, "steps"))
                beside = libdcp.Checkpoint(os.path.join(directory, "steps"))

                def read_on():
                    while not ends.is_set():
                        for i in range(1, 100):
                            np.testing.assert_array_equal(beside[f"/model/w{i}"], i)

                reader = threading.Thread(target=read_on)
                reader.start()
                try:
                    children = 0
                    step = 2
                    while children < CHILDREN:
                        state["w0"] = np.full(5000, step, np.float32)
                        saving = store.save_async(step, state)
                        for _ in range(4):
                            self.start_child(children, checkpoint, directory)
                            children += 1
                        saving.wait()
                        step += 1
                finally:
                    ends.set()
                    reader.join()
                self.assertEqual(store.steps()[-1], step - 1)

    def test_a_parents_store_is_refused(self):
        """Also while the store saves, with memory that the child does not have."""
        with tempfile.TemporaryDirectory(prefix="dcp-forks-") as directory:
            state = {"w": np.ones(1000000, np.float32)}
            with libdcp.Store(directory) as store:
                declared = store.declare(state)
                for step in (1, 2):
                    store.save_async(step, declared).wait()
                saving = store.save_async(3, declared)
                ours, theirs = fork.Pipe()
                child = fork.Process(target=lambda: (signal.alarm(LIMIT_S), theirs.send(use_store(store, state))))
                child.start()
                said = ours.recv() if ours.poll(LIMIT_S) else None
                child.join()
                self.assertEqual((child.exitcode, len(said or ())), (0, 5), said)
                for text in said:
                    self.assertIn("STATE this process was forked from the one that opened the store", text)
                saving.wait()
                self.assertEqual(store.steps(), [1, 2, 3])

    def test_a_child_waits_for_no_save_of_its_parent(self):
        """The save has not begun when the process is forked, or its thread is working."""
        for kind, declared in itertools.product(("directory", "list"), (True, False)):
            with tempfile.TemporaryDirectory(prefix="dcp-forks-") as directory:
                state = {"w": np.ones(300000)}
                with libdcp.Store([libdcp.Tier(directory)] if kind == "list" else directory) as store:
                    given = store.declare(state) if declared else state
                    store.save_async(1, given).wait()
                    for step, name in enumerate(("close", "wait", "result", "exception", "fence", "newest"), 2):
                        with self.subTest(kind, declared=declared, name=name):
                            state["w"][:] = step
                            saving = store.save_async(step, given, copy=False)
                            call = getattr(store if name in ("close", "newest") else saving, name)
                            self.assertEqual(end_of_child(call), 0)
                            saving.wait()
                    self.assertEqual(store.steps(), list(range(1, 8)))

    def test_signals_in_a_child_that_begins_during_a_call(self):
        """The exceptions of its handlers are its own, whichever thread has forked it."""
        def stop(*_signal):
            raise SystemExit(7)
        self.addCleanup(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, stop))
        for kind in ("on_published", "on_published by the worker", "thread"):
            with self.subTest(kind), tempfile.TemporaryDirectory(prefix="dcp-forks-") as directory:
                ours, theirs = fork.Pipe()
                child = fork.Process(target=lambda: (theirs.send(0), time.sleep(CALL_S)))

                def start(*_arguments):
                    if child.pid is None:
                        child.start()

                def start_beside(*_bytes):
                    beside = threading.Thread(target=start)
                    beside.start()
                    beside.join()
                on_published, progress = (None, start_beside) if kind == "thread" else (start, None)
                with libdcp.Store([libdcp.Tier(directory)], on_published=on_published) as store:
                    saving = store.save_async(1, {"w": np.ones(3)})
                    while kind == "on_published by the worker" and not ours.poll(0.01):
                        pass
                    saving.wait()
                    store.save(2, {"w": np.zeros(3)}, progress=progress)
                    self.assertTrue(ours.poll(LIMIT_S))
                    child.terminate()
                    child.join()
                    self.assertEqual(child.exitcode, 7)
                self.assertEqual(libdcp.steps(directory), [1, 2])

    def test_copies_are_refused(self):
        with tempfile.TemporaryDirectory(prefix="dcp-forks-") as directory:
            libdcp.save(directory, 1, {"w": np.ones(3)})
            with libdcp.Store(directory) as store, libdcp.Checkpoint(directory) as checkpoint:
                for made, call in itertools.product((store, checkpoint), (copy.copy, copy.deepcopy, pickle.dumps)):
                    with self.assertRaisesRegex(TypeError, "can be neither copied nor pickled: open its"):
                        call(made)

    def start_child(self, number, *args):
        here, there = fork.Pipe(duplex=False)
        child = fork.Process(target=work, args=(there, number, *args))
        child.start()
        there.close()
        try:
            done = here.recv()
        except EOFError:
            done = False
        child.join()
        self.assertEqual(child.exitcode, 0, WORK[number % len(WORK)].__name__)
        self.assertTrue(done, WORK[number % len(WORK)].__name__)


if __name__ == "__main__":
    unittest.main()
