"""Children of fork, as DataLoader's workers are, beside saves in flight: they read, save and end. A child that hangs is
ended by its alarm, which fails the test."""

import multiprocessing
import os
import signal
import tempfile
import threading
import unittest

import numpy as np

import libdcp

CHILDREN = 40
LIMIT_S = 60
fork = multiprocessing.get_context("fork")


def read_opened(checkpoint: libdcp.Checkpoint, directory: str, number: int) -> bool:
    return bool(np.all(checkpoint["/model/w3"] == 3))


def open_and_read(checkpoint: libdcp.Checkpoint, directory: str, number: int) -> bool:
    return bool(np.all(libdcp.Checkpoint(os.path.join(directory, "steps"))["/model/w3"] == 3))


def save(checkpoint: libdcp.Checkpoint, directory: str, number: int) -> bool:
    libdcp.save(os.path.join(directory, "other"), number, {"x": np.full(10, number)})
    return True


WORK = (read_opened, open_and_read, save)


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
