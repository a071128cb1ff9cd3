"""Signals while the library works: Ctrl-C, and handlers of other signals, at any moment of a call. Each one either ends
the call with the exception of its handler, or comes after the call. None is lost, older steps stay, and the store can
be used.

Moments are drawn at random, with the seed DCP_SEED; the test prints it on failure."""

import contextlib
import faulthandler
import gc
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import unittest
import weakref
from unittest import mock

import numpy as np

import libdcp
from libdcp import _directory, _options, _signals, _tiers

LIMIT_S = 200
ROUNDS = 60
SEED = int(os.environ.get("DCP_SEED", "1"))


class Moment:
    """A signal arrives when the library first checks whether to give up."""

    def __init__(self, number=signal.SIGINT, times=1):
        self._number, self.left = number, times
        self._patches = []

    def __enter__(self):
        is_over, pending = _options.Failures._is_over, _signals.pending

        def kill():
            if self.left and threading.current_thread() is threading.main_thread():
                self.left -= 1
                os.kill(os.getpid(), self._number)

        def is_over_now(failures, ctx):  # by the options of a call
            kill()
            return is_over(failures, ctx)

        def pending_now():
            if sys._getframe(1).f_code.co_name == "<lambda>":  # by the communicator
                kill()
            return pending()
        self._patches = [mock.patch.object(_options.Failures, "_is_over", is_over_now),
                         mock.patch.object(_signals, "pending", pending_now)]
        for patch in self._patches:
            patch.start()
        return self

    def __exit__(self, *_exception):
        for patch in self._patches:
            patch.stop()


def closed_quietly(store):
    """Raises here the failure of a save in flight that was given up, if nobody has received it."""
    with contextlib.suppress(libdcp.Error, KeyboardInterrupt):
        store.close()


class Test(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-signals-")
        self.addCleanup(scratch.cleanup)
        self.dir = scratch.name
        self.state = {"w": np.arange(400000.0), "v": np.ones(7)}
        self.before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM, signal.SIGTERM)}
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(lambda: [signal.signal(number, handler) for number, handler in self.before.items()])

    def calls(self, store):
        with libdcp.Checkpoint(store.path(1)) as checkpoint:
            yield lambda: store.save(store.steps()[-1] + 1, self.state)
            yield lambda: store.save(store.steps()[-1] + 1, self.state, layout="sharded")
            yield lambda: store.load({"w": np.zeros(400000), "v": np.ones(7)})
            yield lambda: libdcp.load(self.dir, {"w": np.zeros(400000), "v": np.ones(7)})
            yield lambda: libdcp.prove(self.state)
            yield checkpoint.verify

    def test_a_call_is_given_up(self):
        with libdcp.Store(self.dir) as store:
            store.save(1, self.state)
            for call in self.calls(store):
                steps = store.steps()
                for times in (1, 3):
                    with Moment(times=times) as moment, self.assertRaises(KeyboardInterrupt):
                        call()
                    self.assertLess(moment.left, times)
                    self.assertEqual(store.steps(), steps)
                call()
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def test_what_comes_before_the_bytes_move(self):
        """The layout of files, the copying of an asynchronous save, and opening a checkpoint with many files."""
        many = {f"w{i}": np.full(3, float(i)) for i in range(300)}
        shards, other = self.dir + "/shards", self.dir + "/other"
        libdcp.save(shards, 1, many, layout="sharded", shards=20)
        for call in (lambda store: store.save(1, many), lambda store: store.save_async(1, self.state),
                     lambda store: store.save_async(1, self.state, copy_bytes=1), lambda _: libdcp.Checkpoint(shards),
                     lambda _: libdcp.read(shards), lambda _: libdcp.save_async(other, 1, many)):
            with libdcp.Store(self.dir + "/steps", replace=True) as store:  # the check happens now and then
                with Moment() as moment, self.assertRaises(KeyboardInterrupt):
                    call(store)
                self.assertEqual(moment.left, 0)
                store.save(2, self.state)  # the signal does not affect it
                self.assertEqual(store.steps(), [2])
        self.assertEqual(libdcp.steps(other), [])

    def test_what_a_handler_raises(self):
        class Late(Exception):
            pass

        def late(*_signal):
            raise Late("time is up")
        signal.signal(signal.SIGALRM, late)
        with libdcp.Store(self.dir) as store:
            store.save(1, self.state)
            for call in self.calls(store):
                with Moment(signal.SIGALRM):
                    try:
                        call()
                        self.fail("it has not raised")
                    except Late as e:
                        self.assertEqual(traceback.extract_tb(e.__traceback__)[-1].name, "late")
            self.assertEqual(store.steps(), [1])

    def test_a_handler_that_raises_nothing(self):
        come = []
        signal.signal(signal.SIGTERM, lambda *_: come.append(store.steps()))
        with libdcp.Store(self.dir) as store:
            store.save(1, self.state)
            for call in self.calls(store):
                with Moment(signal.SIGTERM):
                    call()
            self.assertEqual(come, [[1], [1, 2], [1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 2, 3]])

    def test_a_handler_that_uses_the_store(self):
        signal.signal(signal.SIGTERM, lambda *_: store.save(5, self.state))
        with libdcp.Store(self.dir) as store:
            with Moment(signal.SIGTERM), self.assertRaisesRegex(RuntimeError, "a signal handler can't use the store"):
                store.save(9, self.state)
            os.kill(os.getpid(), signal.SIGTERM)
            self.assertEqual(store.steps(), [5])

    def test_a_handler_that_closes_a_list_while_a_save_in_flight_is_waited_for(self):
        """With freed memory that is overwritten."""
        environment = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.malloc.perturb=165"}
        for call in ("save", "close", "fence"):
            with self.subTest(call):
                done = subprocess.run([sys.executable, __file__, "closing", f"{self.dir}/{call}", call], env=environment,
                                      timeout=LIMIT_S, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr[-3000:])

    def test_a_handler_that_closes_the_store_while_the_save_is_looked_at(self):
        for is_list in (False, True):
            with self.subTest(is_list=is_list):
                done = subprocess.run([sys.executable, __file__, "looking", f"{self.dir}/{is_list}", str(int(is_list))],
                                      timeout=LIMIT_S, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr[-3000:])

    def test_a_handler_that_closes_the_store_in_a_fence(self):
        """The worker's thread is about to end the save, and waits for the fence."""
        gate = threading.Event()

        def await_function(thread, name):
            def is_inside():
                frame = sys._current_frames().get(thread)
                while frame and frame.f_code.co_name != name:
                    frame = frame.f_back
                return frame is not None
            while not is_inside():
                time.sleep(0.001)

        def interrupt(thread=threading.get_ident()):
            await_function(thread, "fence")
            os.kill(os.getpid(), signal.SIGINT)

        def handler(*_signal):
            gate.set()
            while not saving._has_ended():
                time.sleep(0.001)
            await_function(store._worker._thread, "_finish")
            store.close()
        signal.signal(signal.SIGINT, handler)
        store = libdcp.Store(self.dir)
        saving = store.save_async(1, self.state, copy=False, progress=lambda *_: gate.wait(LIMIT_S))
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        saving.fence()
        interrupter.join()
        self.assertGreater(saving.result().bytes, 0)
        self.assertEqual(libdcp.steps(self.dir), [1])

    def test_a_handler_that_saves_while_a_save_in_flight_is_waited_for(self):
        """The save in flight fails, and its own caller learns of that."""
        gate = threading.Event()

        def handler(*_signal):
            os.rename(self.dir + "/a", self.dir + "/moved")
            gate.set()
            store.save(2, self.state)
        signal.signal(signal.SIGINT, handler)
        with libdcp.Store([libdcp.Tier(self.dir + "/a"), libdcp.Tier(self.dir + "/b", every=2)]) as store:
            saving = store.save_async(1, self.state, progress=lambda *_: gate.wait(LIMIT_S))
            self.signal_once_main_waits()
            with self.assertLogs("libdcp"), self.assertRaisesRegex(libdcp.Error, "step 1 was not saved: .* was saved"):
                store.save(4, self.state)
            self.assertIsInstance(saving.exception(), libdcp.Error)
            self.assertEqual(libdcp.steps(self.dir + "/b"), [2, 4])

    def test_a_handler_that_is_set_meanwhile(self):
        def first(*_signal):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, first)
        with libdcp.Store(self.dir) as store, Moment(signal.SIGTERM, times=2):
            store.save(1, self.state)
        self.assertIs(signal.getsignal(signal.SIGTERM), signal.SIG_IGN)

    def test_in_a_progress_function(self):
        with libdcp.Store(self.dir) as store:
            with self.assertRaises(KeyboardInterrupt):
                store.save(1, self.state, progress=lambda *_: os.kill(os.getpid(), signal.SIGINT))
            self.assertEqual(store.steps(), [])

    def test_what_python_would_ignore(self):
        """A destructor, or a callback of a weak reference, runs while the library examines the state: Python
        reports exceptions in these as ignored."""
        class Left:
            def __del__(self):
                os.kill(os.getpid(), signal.SIGINT)

        class Slow(dict):
            def items(self):
                go()
                return super().items()

        def drop_referred():
            left = threading.Event()
            found = weakref.ref(left, lambda _: os.kill(os.getpid(), signal.SIGINT))
            del left
            return found
        hook = sys.unraisablehook
        with libdcp.Store(self.dir) as store:
            for go in (Left, drop_referred):
                with self.subTest(go.__name__), self.assertRaises(KeyboardInterrupt):
                    store.save(1, {"model": Slow(self.state)})
                self.assertIs(sys.unraisablehook, hook)
            self.assertEqual(store.steps(), [])

    def test_no_destructor_of_what_is_closed(self):
        """A destructor would lose a signal's exception, and every program drops closed stores."""
        def saved():
            libdcp.save(self.dir, 1, self.state, replace=True)

        def loaded():
            libdcp.load(self.dir, {"w": np.zeros(400000), "v": np.ones(7)})

        def opened():
            checkpoint = libdcp.Checkpoint(self.dir)
            checkpoint.close()
            return checkpoint

        def pinned(store):
            pin = store.pin(1)
            pin.release()
            return pin

        def stored():
            with libdcp.Store(self.dir, replace=True) as store:
                store.save(1, self.state)
                return store, pinned(store), store.save_async(1, self.state)
        saved()
        for make in (saved, loaded, opened, stored):
            kept = [make()]
            gc.collect()
            called = []
            sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
            kept.clear()
            sys.setprofile(None)
            self.assertEqual(called, [], make.__name__)

    def test_a_step_is_let_go_of(self):
        """Reads that end with an exception release it, so older steps are removed according to the store's keep."""
        def fail(*_bytes):
            raise ValueError("no more")

        def fill():
            libdcp.Checkpoint(self.dir).fill({"model": {"w": np.zeros(400000), "v": np.ones(7)}})
        calls = {"read": lambda: libdcp.read(self.dir), "fill": fill,
                 "load": lambda: libdcp.load(self.dir, {"w": np.zeros(400000), "v": np.ones(7)}),
                 "verify": lambda: libdcp.Checkpoint(self.dir).verify(),
                 "a function of verify": lambda: libdcp.Checkpoint(self.dir).verify(progress=fail),
                 "a function of load": lambda: libdcp.load(self.dir, {"w": np.zeros(400000), "v": np.ones(7)},
                                                              progress=fail)}
        with libdcp.Store(self.dir, keep=1) as store:
            for step, (name, call) in zip(range(1, 100, 2), calls.items()):
                with self.subTest(name):
                    store.save(step, {**self.state, "v": np.full(7, float(step))})
                    gc.collect()  # left over from other tests
                    before = len(os.listdir("/proc/self/fd"))
                    interrupts = Moment() if not name.startswith("a function") else contextlib.nullcontext()
                    try:  # assertRaises would clear the frames
                        with interrupts:
                            call()
                        self.fail("it has not raised")
                    except (KeyboardInterrupt, ValueError):
                        pass
                    gc.collect()
                    self.assertEqual(len(os.listdir("/proc/self/fd")), before)
                    store.save(step + 1, {**self.state, "v": np.full(7, -float(step))})
                    self.assertEqual(store.steps(), [step + 1])

    def test_a_read_lets_go_of_its_step_while_its_exception_is_kept(self):
        """The interpreter keeps the last exception at a prompt."""
        with libdcp.Store(self.dir, keep=1) as store:
            store.save(1, self.state)
            kept = None
            try:
                with Moment():
                    libdcp.read(self.dir)
            except KeyboardInterrupt as e:
                kept = e
            store.save(2, self.state)
            self.assertEqual(store.steps(), [2])
            self.assertIsNotNone(kept)

    def test_as_a_lock_is_taken(self):
        """An exception between a condition's __enter__, which is Python's, and its block would leave the lock
        held."""
        def interrupt_at(nth):
            """A trace function: a signal arrives when the library has taken its nth condition."""
            def on_return(frame, event, _argument):
                nonlocal nth
                if event == "return":
                    nth -= 1
                    if nth == 0:
                        sys.settrace(None)
                        signal.raise_signal(signal.SIGINT)
                return on_return

            def on_call(frame, _event, _argument):
                outer, code = frame.f_back, frame.f_code
                while outer and "libdcp" not in outer.f_code.co_filename.split(os.sep):
                    outer = outer.f_back
                return on_return if outer and code.co_name == "__enter__" and code.co_filename == threading.__file__ else None
            return on_call, lambda: nth <= 0
        asks = {"fence": lambda store, saving: saving.fence(), "result": lambda store, saving: saving.result(),
                "exception": lambda store, saving: saving.exception(LIMIT_S), "close": lambda store, saving: store.close()}
        for (name, ask), copy in itertools.product(asks.items(), (True, False)):
            came, nth = True, 0
            while came and nth < 30:
                nth += 1
                with self.subTest(name, copy=copy, nth=nth):
                    store = libdcp.Store(self.dir, keep=1)
                    state = store.declare(self.state)
                    store.save_async(1000 * nth + 1, state, copy=copy).wait()
                    trace, has_come = interrupt_at(nth)
                    try:
                        sys.settrace(trace)
                        ask(store, store.save_async(1000 * nth + 2, state, copy=copy))
                    except KeyboardInterrupt:
                        pass
                    finally:
                        sys.settrace(None)
                    came = has_come()
                    closer = threading.Thread(target=lambda: closed_quietly(store), daemon=True)
                    closer.start()
                    closer.join(LIMIT_S)
                    self.assertFalse(closer.is_alive())
            shutil.rmtree(self.dir)
            os.mkdir(self.dir)

    def test_while_a_save_in_flight_is_waited_for(self):
        """Interrupting the wait of Saving leaves the save alone; the next call of the store gives it up."""
        gate = threading.Event()
        with libdcp.Store(self.dir) as store:
            saving = store.save_async(1, self.state, progress=lambda *_: gate.wait(LIMIT_S))
            for wait in (saving.wait, saving.result, saving.exception):
                self.signal_once_main_waits()
                with self.assertRaises(KeyboardInterrupt):
                    wait()
            self.assertFalse(saving.done())
            self.signal_once_main_waits(gate.set)
            with self.assertRaises(KeyboardInterrupt):
                store.save(2, self.state)
            self.assertEqual(saving.exception().status, libdcp.Status.CANCELLED)
            store.save(3, self.state)
            self.assertEqual(store.steps(), [3])

    def test_a_lost_save_is_told_in_spite_of_a_signal(self):
        """The call that would raise the failure of the save in flight raises the handler's exception, and logs it."""
        calls = {"close": lambda store: store.close(), "load": lambda store: store.load(self.state),
                 "continue_from": lambda store: store.continue_from(1), "remove": lambda store: store.remove(1),
                 "save": lambda store: store.save(3, self.state)}
        for (name, call), is_list in itertools.product(calls.items(), (False, True)):
            if is_list and name == "remove":
                continue
            with self.subTest(name, is_list=is_list), tempfile.TemporaryDirectory(dir=self.dir) as place:
                store, gate = libdcp.Store([libdcp.Tier(place)] if is_list else place), threading.Event()
                store.save(1, self.state)

                def fail(done, total, store=store, gate=gate):
                    gate.wait(LIMIT_S)
                    store._saving._told = True  # as if a call were waiting; otherwise the thread would log it, too
                    raise ValueError("no more")

                def settled(of, settle=libdcp.Store._settle):
                    found = settle(of)
                    if found is not None:
                        os.kill(os.getpid(), signal.SIGINT)
                    return found
                saving = store.save_async(2, self.state, progress=fail)
                gate.set()
                while saving.ends_alone and not saving.done():
                    time.sleep(0.001)
                saving._told = False
                with mock.patch.object(libdcp.Store, "_settle", settled), \
                        self.assertLogs("libdcp", "ERROR") as logged, self.assertRaises(KeyboardInterrupt):
                    call(store)
                self.assertEqual([line for line in logged.output if "step 2 was not saved" in line],
                                 ["ERROR:libdcp:step 2 was not saved: no more"])
                closed_quietly(store)

    def test_once_an_asynchronous_save_has_begun(self):
        """The signal arrives when the call only has to return: the caller gets no save to fence, and changes the
        memory."""
        begun = libdcp.Store._begun

        def begun_and_interrupted(*arguments):
            saving = begun(*arguments)
            os.kill(os.getpid(), signal.SIGINT)
            return saving
        lists = [libdcp.Tier(f"{self.dir}/a", keep=0), libdcp.Tier(f"{self.dir}/b", keep=0)]
        for name, place in (("one", f"{self.dir}/one"), ("list", lists)):
            for declared in False, True:
                with libdcp.Store(place) as store:
                    step = max(store.steps(), default=0) + 1
                    state = store.declare(self.state) if declared else self.state
                    self.state["w"][:] = step
                    store.save_async(step, state, copy=False).wait()
                    for step in range(step + 1, step + 6):
                        self.state["w"][:] = step
                        with self.subTest(name, declared=declared, step=step):
                            with mock.patch.object(libdcp.Store, "_begun", begun_and_interrupted), \
                                    self.assertRaises(KeyboardInterrupt):
                                store.save_async(step, state, copy=False)
                            self.state["w"][:] = -1
                    store.save(step + 1, {"v": np.ones(1)})
                self.check_steps(f"{self.dir}/{'one' if name == 'one' else 'a'}")
        self.state["w"][:] = 1
        other = self.dir + "/other"
        with mock.patch.object(libdcp.Store, "_begun", begun_and_interrupted), self.assertRaises(KeyboardInterrupt):
            libdcp.save_async(other, 1, self.state, copy=False)
        self.state["w"][:] = -1
        while self.is_in_use(other):
            time.sleep(0.01)
        self.check_steps(other)

    def is_in_use(self, directory):
        try:
            libdcp.Store(directory).close()
        except libdcp.Error as e:
            return e.status == libdcp.Status.BUSY
        return False

    def check_steps(self, directory):
        """Each step has its own number in all of "w", or in none of it."""
        for step in libdcp.steps(directory):
            with libdcp.Checkpoint(f"{directory}/step-{step:08d}") as found:
                if "/model/w" in found:
                    self.assertEqual(set(found["/model/w"]), {float(step)})

    def signal_once_main_waits(self, after=lambda: None):
        """The main thread waits within the library if it sleeps at two checks."""
        naps = []
        sleep = time.sleep

        def nap(seconds):
            if threading.current_thread() is threading.main_thread():
                naps.append(1)
                if len(naps) == 2:
                    os.kill(os.getpid(), signal.SIGINT)
                if len(naps) == 4:
                    after()
            sleep(seconds)
        patch = mock.patch("libdcp.saving.time.sleep", nap)
        patch.start()
        self.addCleanup(patch.stop)

    def test_random_moments(self):
        for layout in ("global", "sharded"):
            done = subprocess.run([sys.executable, __file__, "rounds", self.dir + "/" + layout, str(SEED), layout],
                                  timeout=LIMIT_S, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, f"DCP_SEED={SEED}: {done.stdout[-3000:]}{done.stderr[-6000:]}")


def closing(directory, call):
    """A handler closes the list whose save in flight the main thread waits for in the call."""
    gate, closed = threading.Event(), []

    def handler(*_signal):
        gate.set()
        store.close()
        closed.append(True)
    signal.signal(signal.SIGTERM, handler)
    faulthandler.enable()
    store = libdcp.Store([libdcp.Tier(f"{directory}/{i}") for i in range(2)])
    state = {"w": np.ones(1000000)}
    saving = store.save_async(1, state, copy=False, progress=lambda *_: gate.wait(LIMIT_S))
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
    if call == "save":
        try:
            store.save(2, state)
        except ValueError as e:
            assert str(e) == "the store is closed"
    else:
        getattr(store, call)()
    assert closed and saving.exception() is None
    assert libdcp.steps(f"{directory}/0") == [1]


def looking(directory, is_list):
    """The handler comes when the main thread, which looks whether the save has ended, finds that it has; the worker's
    thread looks only afterwards."""
    faulthandler.dump_traceback_later(LIMIT_S / 10, exit=True)
    come = threading.Event()

    def handler(*_signal):
        come.set()
        store.close()
    signal.signal(signal.SIGTERM, handler)
    store = libdcp.Store([libdcp.Tier(directory)] if is_list == "1" else directory)
    flights = _tiers if is_list == "1" else _directory
    progress = flights._Flight.progress

    def looked(flight):
        if threading.current_thread() is not threading.main_thread():
            return progress(flight) if come.is_set() else 0
        found = progress(flight)
        if found == 1 and not come.is_set() and sys._getframe(1).f_code.co_name == "_has_ended":
            signal.raise_signal(signal.SIGTERM)
        return found
    with mock.patch.object(flights._Flight, "progress", looked):
        saving = store.save_async(1, {"w": np.ones(1000)})
        saving.wait()
    assert come.is_set() and libdcp.steps(directory) == [1]


def rounds(directory, seed, layout):
    """Signals at random moments of random calls, in a separate process, so that a hang ends only that process."""
    chance, come = random.Random(seed), []

    def handler(*_signal):
        come.append(time.monotonic())
        raise KeyboardInterrupt
    signal.signal(signal.SIGINT, handler)
    faulthandler.dump_traceback_later(LIMIT_S - 20, exit=True)
    state = {f"w{i}": np.full(60000, float(i)) for i in range(20)}
    step = 1
    libdcp.save(directory, step, state, layout=layout)

    def save_async(store):
        saving = store.save_async(step + 1, state, layout=layout)
        saving.fence()
        saving.wait()

    def load(store):
        into = {name: np.zeros(60000) for name in state}
        store.load(into)
        assert all((into[name] == state[name]).all() for name in state)

    def verify(store):
        with libdcp.Checkpoint(directory) as checkpoint:
            assert checkpoint.verify() == []
            assert all((checkpoint["/model/" + name] == state[name]).all() for name in state)
    calls = [lambda store: store.save(step + 1, state, layout=layout),
             lambda store: store.save(step + 1, state, layout=layout, progress=lambda *_: None),
             save_async, load, verify, lambda store: libdcp.prove(state), lambda store: store.close(),
             lambda store: libdcp.save(directory + "-other", step, state, replace=True)]

    def kill(begin, end, delay, times, before):
        begin.wait()
        for sent in range(1, times + 1):
            time.sleep(delay)
            os.kill(os.getpid(), signal.SIGINT)
            while len(come) < before + sent:  # otherwise, two signals could merge into one
                time.sleep(0.0005)
        end.set()
    for number in range(ROUNDS):
        call, sent = chance.choice(calls), 1 if chance.random() < 0.7 else 3
        begin, end, before, interrupted = threading.Event(), threading.Event(), len(come), 0
        killer = threading.Thread(target=kill, args=(begin, end, chance.random() ** 2 * 0.05, sent, before), daemon=True)
        killer.start()
        try:
            with libdcp.Store(directory, keep=3) as store:
                begin.set()
                call(store)
        except KeyboardInterrupt:
            interrupted += 1
        while True:  # the code after the call
            try:
                while not end.wait(0.01):  # an interrupted join treats the thread as ended
                    pass
                break
            except KeyboardInterrupt:
                interrupted += 1
        store.close()  # a signal just before a with statement's __exit__ skips it
        assert 1 <= interrupted <= len(come) - before == sent, (number, interrupted, len(come) - before, sent)
        found = libdcp.steps(directory)
        assert step in found, (number, found)
        step = found[-1]
    assert signal.getsignal(signal.SIGINT) is handler
    for found in libdcp.steps(directory):
        with libdcp.Checkpoint(libdcp.store.step_path(directory, found)) as checkpoint:
            assert checkpoint.verify() == [], found
    with libdcp.Store(directory) as store:
        store.save(step + 1, state)


if __name__ == "__main__":
    if sys.argv[1:2] == ["rounds"]:
        rounds(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    elif sys.argv[1:2] in (["closing"], ["looking"]):
        {"closing": closing, "looking": looking}[sys.argv[1]](*sys.argv[2:])
    else:
        unittest.main()
