"""A background save."""

from __future__ import annotations

import atexit
import concurrent.futures.thread
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from . import _capi, _locks, _options, _signals
from ._options import Report
from ._layout import Layout
from ._state import State
from .errors import Error, Status

log = logging.getLogger("libdcp")
_WORKERS = "libdcp-saving"  # the names of workers' threads begin like this


class Flight(Protocol):
    """A save that has begun, as the library represents it."""

    def fence(self) -> None: ...
    def progress(self) -> int:
        """1: it has ended; 0: a thread is doing it; negative: nobody does it before a fence or a wait."""
    def cancel(self) -> None: ...
    def wait(self, report: _capi.ReportStruct) -> None:
        """Waits for the end of the save, and frees it."""
    def folders(self) -> list[str]:
        """Once the save has ended: the folders of the step."""


class _Beginning:
    """The flight, once it has begun, or the exception. Waiting uses a plain lock: if a signal handler's exception
    arrives while a future's condition is being acquired, the condition stays held; a plain lock does not. In a child of
    fork, nobody releases the lock: what had not begun by then never begins there."""

    def __init__(self) -> None:
        self.done = False
        self._process = os.getpid()
        self._flight: Flight | None = None
        self._failure: BaseException | None = None
        self._latch = threading.Lock()
        self._latch.acquire()

    def set(self, flight: Flight | None, failure: BaseException | None = None) -> None:
        self._flight, self._failure = flight, failure
        self.done = True
        self._latch.release()

    def exception(self) -> BaseException | None:
        if self._process != os.getpid():
            return self._failure if self.done else Error(
                "this process was forked from the one that saves: only that process can wait for the save",
                status=Status.STATE)
        with self._latch:
            return self._failure

    def result(self) -> Flight:
        failure = self.exception()
        if failure is not None:
            raise failure
        assert self._flight is not None
        return self._flight


class Worker:
    """A thread that makes one save after another. The thread is started before the next save begins: a caller that
    starts a thread must wait until the thread gets a processor, and saves keep processors busy. A program does not end
    while the thread works."""

    def __init__(self) -> None:
        self._threads: concurrent.futures.ThreadPoolExecutor | None = None
        self._thread = 0
        self._process = os.getpid()

    @property
    def is_of_this_process(self) -> bool:
        """A child of fork has no such thread."""
        return self._process == os.getpid()

    @property
    def is_this_thread(self) -> bool:
        return self._thread == threading.get_ident()

    def start(self, work: Callable[[], None]) -> bool:
        """Returns False if no more threads can be started, or the interpreter is ending."""
        turn = threading.Lock()  # the caller goes first; otherwise it would have to wait for the interpreter's lock
        left: list[bool] = []  # not empty: the work is left to the caller, whatever the thread does later

        def run() -> None:
            self._thread = threading.get_ident()
            with turn:
                pass
            try:
                if not left:
                    work()
            except BaseException:
                log.exception("the thread of an asynchronous save has failed")
        with turn:
            try:
                self._threads = self._threads or concurrent.futures.ThreadPoolExecutor(1, _WORKERS)
                self._threads.submit(run)
            except RuntimeError:
                left.append(True)
        return not left

    def close(self) -> None:
        """Returns once the thread has ended; if the thread itself calls this, returns at once."""
        threads, self._threads = self._threads, None
        if threads and self.is_of_this_process:
            threads.shutdown(wait=self._thread != threading.get_ident())


def _forget_workers() -> None:
    """In a child of fork. If a worker's thread has forked it, in on_published, that thread would otherwise wait for
    itself at the child's end, which is an error: the pool ends its threads then."""
    queues: Any = getattr(concurrent.futures.thread, "_threads_queues", {})
    for thread in [thread for thread in queues if thread.name.startswith(_WORKERS)]:
        del queues[thread]


os.register_at_fork(after_in_child=_forget_workers)


class _InFlight:
    """The saves that the program waits for when it ends. By then, a pool's threads have ended, but the library's
    threads have not: they call the package's functions, and read memory that the interpreter is about to free. And some
    saves have no thread."""

    def __init__(self) -> None:
        self._savings: set[Saving] = set()
        self._is_over = False
        atexit.register(self._end)

    def check(self) -> None:
        """Called before a save begins."""
        if self._is_over and threading.current_thread() is not threading.main_thread():
            raise RuntimeError("the program is ending: a save that a daemon thread begins now would not be waited for")

    def add(self, saving: Saving) -> None:
        if self._is_over:
            saving.finish_within_its_call()
            return
        if not self._savings:
            atexit.register(self._finish)  # handlers run in reverse order: before an existing group is destroyed
        self._savings.add(saving)

    def discard(self, saving: Saving) -> None:
        self._savings.discard(saving)
        if not self._savings and not self._is_over:
            atexit.unregister(self._finish)

    def _finish(self) -> None:
        for saving in list(self._savings):
            saving.finish_at_exit()

    def _end(self) -> None:
        self._is_over = True
        self._finish()


class Saving(concurrent.futures.Future[Report]):
    """A save in the background. With ``copy=False``, the state's memory must not change before :meth:`fence` returns.

    It is a future whose result is a :class:`Report`. Each rank should call :meth:`wait` or :meth:`result`; otherwise a
    store's next save and its close do so, and raise the save's failure, which is also logged. The next save raises it
    only after its own step was saved. A program that ends earlier waits for the save, even after
    ``destroy_process_group()``.

    Args:
        begin: begins the save.
        flight: given if the save has already begun; None: a thread begins it.
        ends_alone: a thread waits for the save and completes the future; otherwise the first caller that needs the
            result does, or the store's next call.
        state: what is saved.
        owns_state: whether to close the state at the end.
        failures: the exceptions of the functions that the library calls.
        worker: its thread does the work in the background.
        hold: returns a context manager, inside which this thread has the store; None: this thread always has it.
        close: called once the save has ended, in whatever way, before anyone learns of that; None: nothing needs to be
            closed.
        is_copied: whether the memory may already change.
    """

    def __init__(self, begin: Callable[[], Flight], flight: Flight | None, ends_alone: bool, state: State | Layout,
                 owns_state: bool, failures: _options.Failures, worker: Worker,
                 hold: Callable[[], contextlib.AbstractContextManager[None]] | None = None,
                 close: Callable[[], None] | None = None, is_copied: bool = False) -> None:
        super().__init__()
        self._condition = threading.Condition(_locks.lock())  # the future's own, which a child of fork may inherit held
        self._ends_alone = ends_alone
        self._begin = begin  # kept alive: it refers to the functions that the library calls
        self._saved = state
        self._owns_saved = owns_state
        self._failures = failures
        self._is_copied = is_copied
        self._hold = hold or contextlib.nullcontext
        self._close = close
        self._worker = worker
        self._begun = _Beginning()
        # A signal handler may run while its own thread holds one of these locks.
        self._ending = _locks.lock()  # held by the thread that waits for the end, or at the fence
        self._alive = _locks.lock()  # held while the flight is used, since the end frees it
        self._freed = False  # the flight, or it is being freed
        self._is_over = False  # the flight has been freed
        self._finisher = 0  # the thread that frees the flight
        self._told = False
        self.set_running_or_notify_cancel()
        state.hold()
        if flight:
            self._begun.set(flight)
        if not flight or flight.progress() >= 0:
            self._start()
        else:
            self._ends_alone = False  # nobody does the save until somebody waits
        _in_flight.add(self)

    def _start(self) -> None:
        if self._worker.start(self._run):
            return
        self._ends_alone = False
        self._begin_here()

    def done(self) -> bool:
        """Returns true if the save has ended and its outcome is known. Does not use the future's lock: if a signal
        handler's exception arrives while that lock is being acquired, the lock stays held forever."""
        return self._state not in ("PENDING", "RUNNING")

    def fence(self) -> None:
        """Returns once the memory may change: what was not written by then was copied."""
        self._refuse_callbacks()
        if not self._is_copied and self._is_alive():
            with self._turn(), self._ending:
                if self._is_alive():
                    self._begun.result().fence()

    def _refuse_callbacks(self) -> None:
        if not self.done() and _options.calls_back(self._failures.owner):
            raise RuntimeError("a function that the save has called can't wait for it")

    def _turn(self) -> contextlib.AbstractContextManager[None]:
        """A context for code that uses the flight. Inside it, this thread has the store, unless another thread makes
        and ends the save, or the flight has been freed. A thread that has the store may wait for a save that the worker
        has yet to begin, so the worker's thread never waits for the store."""
        with self._use():
            is_free = not self._is_alive() or self._ends_alone and not self._is_left()
        return contextlib.nullcontext() if is_free else self._hold()

    def _is_left(self) -> bool:
        """For a save that has not been freed: returns true if nobody does it before somebody waits for it."""
        return self._begun.result().progress() < 0

    def wait(self) -> Report:
        """Waits until the step is durable.

        Raises:
            libdcp.Error: the save failed, with the same status on all ranks; older steps are not changed.
        """
        return self.result()

    def result(self, timeout: float | None = None) -> Report:
        with self._telling():
            self._finish_within(timeout)
            with _signals.Shield():
                return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        with self._telling():
            self._finish_within(timeout)
            with _signals.Shield():
                return super().exception(0)

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """A context in which the caller learns how the save ended, unless the time is up first, or a signal arrives."""
        self._told = True
        try:
            yield
        except BaseException as e:
            self._told = self.done() and e is super().exception()
            raise

    def _finish_within(self, timeout: float | None) -> None:
        """Returns once the future is done, or the time is up; completes it if no thread does."""
        self._refuse_callbacks()
        end = None if timeout is None else time.monotonic() + timeout
        if end is None:
            self._finish()
        while not self.done() and (end is None or time.monotonic() < end):
            if not self._ends_alone and self._has_ended():
                self._finish()
            else:
                time.sleep(0.001)

    def cancel(self) -> bool:
        """Requests that the save be given up, on all ranks. Returns False, since that may come too late: :meth:`wait`
        reports the outcome."""
        with self._use():
            if self._is_alive():
                self._begun.result().cancel()
        return False

    def give_up(self) -> None:
        """Called if the call that began the save raises a signal handler's exception: the save is cancelled, and its
        outcome need not be reported."""
        self._told = True
        self.cancel()

    def let_go(self) -> None:
        """Gives the save up, because the call that began it raises an exception; returns once nothing reads the state's
        memory."""
        with _signals.Shield():  # a second signal waits for this
            self.give_up()
            if self._is_alive() and not self._is_left():
                self.fence()

    def await_begin(self) -> None:
        """Returns once the save has begun, or has failed to: from then on, it does not use the store's group."""
        self._begun.exception()

    def finish_at_exit(self) -> None:
        """Called when the program ends: completes the save."""
        try:
            if self._worker.is_of_this_process:
                self._finish()
        except BaseException as e:
            log.error("an asynchronous save could not be ended: %s", e)
        self._tell_log()

    def finish_within_its_call(self) -> None:
        """Ends the save in the call that began it, whose thread has the store; the store stays open."""
        self._hold, self._close = contextlib.nullcontext, None
        self.finish_at_exit()

    @property
    def ends_alone(self) -> bool:
        """Whether the worker's thread completes the save."""
        return self._ends_alone

    @property
    def has_failed(self) -> bool:
        return self.done() and super().exception() is not None

    @property
    def folders(self) -> list[str]:
        """The folders of the saved step."""
        return self._begun.result().folders()

    def settle(self) -> None:
        """Called before the store continues: raises a failure that was not reported yet."""
        if self._told:
            self._finish()
        else:
            self.result()

    def refuse_interrupted(self) -> None:
        """Called before this thread waits for the end, which may be what its signal handler has interrupted."""
        if self._finisher == threading.get_ident() and not self.done():
            raise RuntimeError("a signal's handler waits for a save whose end it has interrupted")

    def _is_alive(self) -> bool:
        """Returns true if there is a flight, now or once it has begun."""
        return not self._freed and self._begun.exception() is None

    def _run(self) -> None:
        """Begins the save if it has not begun, and returns only when it has ended: a program cannot end before
        that."""
        self._begin_here()
        nap = 0.001
        while not self._has_ended():
            time.sleep(nap)
            nap = min(2 * nap, 0.1)  # each check takes the interpreter from other computation
        with self._use():
            self._ends_alone = self._ends_alone and not (self._is_alive() and self._is_left())
        if not self._ends_alone:
            return
        self._finish()
        self._tell_log()

    def _tell_log(self) -> None:
        """Logs the failure, since perhaps nobody will ask for it."""
        if self.has_failed and not self._told:
            log.error("an asynchronous save failed: %s", super().exception())

    def _begin_here(self) -> None:
        if not self._begun.done:
            try:
                flight, failure = self._begin(), None
            except BaseException as e:
                flight, failure = None, e
            self._begun.set(flight, failure)

    def _has_ended(self) -> bool:
        with self._use():
            return not self._is_alive() or self._begun.result().progress() != 0

    @contextlib.contextmanager
    def _use(self) -> Iterator[None]:
        """Holds ``_alive``, unless the flight is freed. A signal handler may free it, and wait for this thread, when it
        has interrupted code that holds the lock."""
        is_held = False
        while not self._freed and not is_held:
            is_held = self._alive.acquire(timeout=_signals.ASK_S)
        try:
            yield
        finally:
            if is_held:
                self._alive.release()

    def _finish(self) -> None:
        """The first caller waits for the end and completes the future, outside of the locks, since the future's
        callbacks may call methods of this object."""
        while not self._has_ended():  # so that the flight is free for a caller that cancels
            if _signals.pending() is not None:
                self.cancel()  # a call of the store that must end soon waits for this save
            time.sleep(0.001)
        if self._freed:
            self._await_end()
            return
        with _signals.Shield():  # otherwise a signal could arrive between the end and its report
            report = _capi.ReportStruct()
            with self._turn(), self._hold_ending():
                if self._freed:
                    self._await_end()
                    return
                failure = self._end(report)
            self._close_quietly()  # outside of the lock, which a fence may acquire once its thread has the store
            if failure is None:
                self.set_result(_options.report_of(report))
            else:
                self.set_exception(failure)

    def _await_end(self) -> None:
        """Returns once the thread that ends the save no longer uses the store."""
        self.refuse_interrupted()
        while not self._is_over and self._worker.is_of_this_process:
            time.sleep(0.001)

    @contextlib.contextmanager
    def _hold_ending(self) -> Iterator[None]:
        """Holds ``_ending`` and ``_alive``, unless another thread ends the save meanwhile. That may be a signal handler
        which waits for this thread, and has interrupted code that holds one of these locks."""
        is_held = False
        while not self._freed and not is_held:
            if self._ending.acquire(timeout=_signals.ASK_S):
                is_held = self._alive.acquire(timeout=_signals.ASK_S)
                if not is_held:
                    self._ending.release()
        try:
            yield
        finally:
            if is_held:
                self._alive.release()
                self._ending.release()

    def _close_quietly(self) -> None:
        """Failures are logged, since they do not change how the save has ended."""
        close, self._close = self._close, None
        if close:
            try:
                close()
            except BaseException as e:
                log.error("the store of an asynchronous save could not be closed: %s", e)

    def _end(self, report: _capi.ReportStruct) -> BaseException | None:
        """Called by the thread that holds ``_ending`` and ``_alive``."""
        failure = None
        self._finisher = threading.get_ident()
        self._freed = True
        try:
            self._begun.result().wait(report)
        except BaseException as e:
            failure = e
        self._is_over = True
        _in_flight.discard(self)
        self._saved.release()
        if self._owns_saved:
            self._saved.close()
        return self._failures.raised or failure


_in_flight = _InFlight()
check_begin = _in_flight.check
