"""A save in flight that several threads or handlers wait for: libdcp.Saving with a flight that ends when the test
says so."""

import concurrent.futures
import contextlib
import gc
import itertools
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock

import numpy as np

import libdcp
from libdcp import State, _tiers
from libdcp._options import Failures
from libdcp.saving import Worker

LIMIT_S = 60
ENDING = """
import sys, threading, numpy, libdcp
store = libdcp.Store(sys.argv[1])
def save():
    threading.main_thread().join()
    store.save_async(2, {"w": numpy.full(3000000, 7.0)}, copy=sys.argv[2] == "1")
threading.Thread(target=save).start()
"""
# Handlers run in reverse order, so the package's own one has run before this one, which was registered before
# it.
ENDED = """
import atexit, sys
def save():
    store.save_async(2, {"w": numpy.full(3000000, 7.0)}, copy=sys.argv[2] == "1")
atexit.register(save)
import libdcp, numpy
store = libdcp.Store(sys.argv[1])
"""
DAEMON = """
import atexit, sys, threading, numpy, libdcp
store = libdcp.Store(sys.argv[1])
ends, begun = threading.Event(), threading.Event()
def save():
    ends.wait()
    saving = store.save_async(2, {"w": numpy.full(3000000, 7.0)}, copy=sys.argv[2] == "1")
    begun.set()
    threading.Event().wait()
threading.Thread(target=save, daemon=True).start()
atexit.register(lambda: (ends.set(), begun.wait()))
"""
# No thread of the package waits for the save.
NO_THREADS = """
import concurrent.futures, sys, numpy, libdcp
def refuse(*_arguments):
    raise RuntimeError("can't start new thread")
concurrent.futures.ThreadPoolExecutor.submit = refuse
store = libdcp.Store(sys.argv[1])
store.save_async(2, {"w": numpy.full(3000000, 7.0)}, copy=sys.argv[2] == "1")
"""
# The list's stores are being filled when the program ends. The handler runs after the package's own ones.
UNCLOSED = """
import atexit, sys
if sys.argv[2] == "handler":
    atexit.register(lambda: store.save(3, {"w": numpy.ones(3)}))
import libdcp, numpy
store = libdcp.Store([libdcp.Tier(f"{sys.argv[1]}/{i}") for i in range(6)])
saving = store.save_async(2, {"w": numpy.full(2000000, 7.0)})
if sys.argv[2] == "wait":
    saving.wait()
"""


class Flight:
    """A flight that ends when the test lets it, with a failure or without."""

    def __init__(self, failure=None):
        self.end = threading.Event()
        self.failure = failure

    def fence(self):
        pass

    def progress(self):
        return int(self.end.is_set())

    def cancel(self):
        pass

    def wait(self, report):
        if self.failure:
            raise self.failure


def saving_of(flight, ends_alone=True, state=None):
    return libdcp.Saving(lambda: flight, flight, ends_alone, state or State({"x": np.ones(1)}), False, Failures(), Worker())


class Test(unittest.TestCase):
    def test_a_failure_after_time_was_up_is_told(self):
        for ask in (libdcp.Saving.result, libdcp.Saving.exception):
            flight = Flight(RuntimeError("no space"))
            saving = saving_of(flight)
            with self.assertRaises(concurrent.futures.TimeoutError):
                ask(saving, timeout=0)
            with self.assertLogs("libdcp", "ERROR"):
                flight.end.set()
                concurrent.futures.wait([saving], LIMIT_S)
                saving_thread(saving)
            with self.assertRaisesRegex(RuntimeError, "no space"):
                saving.settle()
            saving.settle()  # exactly once

    def test_time_for_what_no_thread_ends(self):
        flight = Flight()
        saving = saving_of(flight, ends_alone=False)
        with self.assertRaises(concurrent.futures.TimeoutError):
            saving.result(timeout=0)
        flight.end.set()
        self.assertEqual(saving.result(timeout=LIMIT_S).bytes, 0)

    def test_a_list_is_closed_while_another_thread_ends_its_save(self):
        """The close waits for that thread, which still uses the list."""
        scratch = tempfile.TemporaryDirectory(prefix="dcp-saving-")
        self.addCleanup(scratch.cleanup)
        store, gate, ends, passed = libdcp.Store([libdcp.Tier(scratch.name)]), *(threading.Event() for _ in range(3))
        closing = threading.Thread(target=store.close)
        early = []
        end, close, has_ended = _tiers.Tiers.end_background, _tiers.Tiers.close, libdcp.Saving._has_ended

        def slow_end(*given):
            ends.set()
            gate.wait()
            return end(*given)

        def noted_close(tiers):
            early.append(not gate.is_set())
            gate.set()
            close(tiers)

        def has_ended_in_turn(saving):
            """The closing thread finds the save ended just before the other one begins to end it."""
            found = has_ended(saving)
            if found and threading.current_thread() is closing:
                passed.set()
                ends.wait()
            elif found:
                passed.wait()
            return found
        with mock.patch.object(_tiers.Tiers, "end_background", slow_end), \
                mock.patch.object(_tiers.Tiers, "close", noted_close), \
                mock.patch.object(libdcp.Saving, "_has_ended", has_ended_in_turn):
            saving = store.save_async(1, {"w": np.ones(3)})
            saving._told = True  # as if a call had waited, and Ctrl-C had interrupted it
            closing.start()
            ends.wait()
            closing.join(0.2)  # a close that does not wait ends within this time
            gate.set()
            closing.join()
        self.assertEqual(early, [False])

    def test_a_state_closed_in_flight(self):
        state, flight = State({"x": np.ones(1)}), Flight()
        saving = saving_of(flight, state=state)
        state.close()
        self.assertTrue(state.handle)
        flight.end.set()
        saving.wait()
        self.assertFalse(state.handle)

    def test_no_more_threads(self):
        with tempfile.TemporaryDirectory(prefix="dcp-saving-") as scratch, libdcp.Store(scratch) as store:
            state = store.declare({"x": np.ones(1)})
            with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start new thread")):
                for step in (1, 2, 3):
                    store.save_async(step, state)
                store.fence()
            self.assertEqual(store.newest(), 2)
            store.close()
            self.assertEqual(libdcp.steps(scratch), [1, 2, 3])

    def test_a_progress_function_can_not_close_the_store(self):
        refused = []

        def close(*_bytes):
            try:
                store.close()
            except RuntimeError as e:
                refused.append(e)
        for copy in (True, False):
            with tempfile.TemporaryDirectory(prefix="dcp-saving-") as scratch, libdcp.Store(scratch) as store:
                store.save_async(1, {"x": np.ones(4)}, copy=copy, progress=close).wait()
                self.assertTrue(refused)
                refused.clear()

    def test_one_begins_as_the_program_ends(self):
        for program, copy in itertools.product((ENDING, ENDED, DAEMON, NO_THREADS), (True, False)):
            with self.subTest(program, copy=copy), tempfile.TemporaryDirectory(prefix="dcp-saving-") as scratch:
                subprocess.run([sys.executable, "-c", program, scratch, str(int(copy))], check=True, timeout=LIMIT_S)
                self.assertEqual(libdcp.steps(scratch), [2])
                self.assertEqual(libdcp.Checkpoint(scratch).verify(), [])

    def test_stores_of_a_list_are_being_filled_as_the_program_ends(self):
        for how in ("save", "wait", "handler"):
            with self.subTest(how), tempfile.TemporaryDirectory(prefix="dcp-saving-") as scratch:
                subprocess.run([sys.executable, "-c", UNCLOSED, scratch, how], check=True, timeout=LIMIT_S)
                for i in range(6):
                    self.assertEqual(libdcp.steps(f"{scratch}/{i}"), [2, 3] if how == "handler" else [2])

    def test_the_directory_is_free_once_somebody_is_told(self):
        """save_async closes its own store, however the save ends, and whether or not anybody waits."""
        def fail(*_bytes):
            raise ValueError("no more")
        directory, order = libdcp.store.Directory, []

        def noting(what, function):
            def call(*arguments):
                order.append(what)
                return function(*arguments)
            return call
        outcomes = {None: None, fail: ValueError}
        with tempfile.TemporaryDirectory(prefix="dcp-saving-") as scratch, \
                mock.patch.object(directory, "close", noting("closed", directory.close)), \
                mock.patch.object(libdcp.Saving, "set_result", noting("told", libdcp.Saving.set_result)), \
                mock.patch.object(libdcp.Saving, "set_exception", noting("told", libdcp.Saving.set_exception)):
            for step, (progress, kind) in enumerate(outcomes.items()):
                for waits in (True, False):
                    with self.subTest(kind=kind, waits=waits), self.logs_of(kind):
                        order.clear()
                        number = 2 * step + waits
                        saving = libdcp.save_async(scratch, number, {"x": np.full(100000, number)}, progress=progress,
                                                   replace=True)
                        if waits:
                            self.assertIs(type(saving.exception()), kind or type(None))
                        concurrent.futures.wait([saving], LIMIT_S)
                        saving_thread(saving)
                        self.assertEqual(order, ["closed", "told"])
            for step in range(10, 30):
                libdcp.save_async(scratch, step, {"x": np.full(100000, step)}).wait()

    def test_the_directory_is_free_once_a_store_is_forgotten(self):
        for kind, call in itertools.product(("directory", "list"), ("save", "save_async")):
            with self.subTest(kind, call=call), tempfile.TemporaryDirectory(prefix="dcp-saving-") as scratch:
                store = libdcp.Store([libdcp.Tier(scratch)] if kind == "list" else scratch)
                saving = getattr(store, call)(1, {"x": np.ones(3)})
                if call == "save_async":
                    saving.wait()
                    saving_thread(saving)
                del store, saving
                gc.collect()
                libdcp.save(scratch, 2, {"x": np.zeros(3)})

    def test_a_directory_that_this_process_has_already(self):
        with tempfile.TemporaryDirectory(prefix="dcp-saving-") as scratch, libdcp.Store(scratch):
            with self.assertRaisesRegex(libdcp.Error, "in use by another writer of the same process, .*close that store"):
                libdcp.save_async(scratch, 1, {"x": np.ones(1)})

    def logs_of(self, kind):
        """Returns the log of a failure that perhaps nobody waits for."""
        return mock.patch.object(libdcp.saving.log, "error") if kind else contextlib.nullcontext()

    def test_a_close_that_fails_does_not_hide_how_the_save_ended(self):
        directory = libdcp.store.Directory
        close = directory.close

        def failing(opened):
            close(opened)
            raise OSError("the disk is gone")
        with tempfile.TemporaryDirectory(prefix="dcp-saving-") as scratch, \
                mock.patch.object(directory, "close", failing), self.assertLogs("libdcp", "ERROR") as logged:
            self.assertEqual(libdcp.save_async(scratch, 1, {"x": np.ones(4)}).wait().bytes, 32)
        self.assertIn("the disk is gone", logged.output[0])

    def test_signals_in_a_fence_and_in_a_wait(self):
        for what in ("fence", "wait"):
            subprocess.run([sys.executable, __file__, "signalled", what], check=True, timeout=LIMIT_S)


def saving_thread(saving):
    """Returns once the thread of a save has ended."""
    saving._worker.close()
    for thread in threading.enumerate():
        if thread.name.startswith("libdcp-saving"):
            thread.join(LIMIT_S)


def signalled(what):
    """A signal's handler waits for the save that its own thread is waiting for."""
    flight, asked = Flight(), []

    def handler(*_signal):
        flight.end.set()
        saving.fence()
        saving.wait()
        asked.append(saving.done())

    def progress():
        if threading.current_thread() is threading.main_thread() and not asked and not flight.end.is_set():
            signal.raise_signal(signal.SIGTERM)
        return int(flight.end.is_set())
    signal.signal(signal.SIGTERM, handler)
    flight.fence = lambda: flight.end.is_set() or signal.raise_signal(signal.SIGTERM)
    saving = saving_of(flight)
    flight.progress = progress
    getattr(saving, what)()
    assert asked == [True]


if __name__ == "__main__":
    if sys.argv[1:2] == ["signalled"]:
        signalled(sys.argv[2])
    else:
        unittest.main()
