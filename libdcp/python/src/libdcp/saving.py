"""A save in flight."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from . import _capi, _options
from ._options import Report
from ._state import State

log = logging.getLogger("libdcp")


class Flight(Protocol):
    """A save that has begun, as the library has it."""

    def fence(self) -> None: ...
    def progress(self) -> int:
        """1, it has ended; 0, a thread does it; less than 0, nobody does it before a fence or a wait."""
    def cancel(self) -> None: ...
    def wait(self, report: _capi.ReportStruct) -> None:
        """Waits for the end, and frees it."""


class Saving(concurrent.futures.Future[Report]):
    """A save in flight. The state's memory must not change before :meth:`fence`.

    It is a future of its :class:`Report`. Each rank calls :meth:`wait`, or asks for the :meth:`result`; a store's next
    save and its close do it for those that nobody asked for, and then raise what went wrong with it, which is logged,
    too. A program that ends meanwhile waits for it, also after ``destroy_process_group()``.

    Args:
        begin: begins it.
        flight: it has begun already; None: a thread begins it.
        ends_alone: a thread waits for it and ends the future; else whoever asks, or the store's next call.
        state: what is saved.
        owns_state: it is closed at the end.
        failures: of the functions that the library calls.
    """

    def __init__(self, begin: Callable[[], Flight], flight: Flight | None, ends_alone: bool, state: State,
                 owns_state: bool, failures: _options.Failures) -> None:
        super().__init__()
        self._ends_alone = ends_alone
        self._begin = begin  # kept: it has what the library calls
        self._saved = state
        self._owns_saved = owns_state
        self._failures = failures
        self._begun: concurrent.futures.Future[Flight] = concurrent.futures.Future()
        self._ending = threading.Lock()  # held by whoever waits for the end, or at the fence
        self._alive = threading.Lock()  # held while the flight is used that the end frees
        self._freed = False  # the flight
        self._told = False
        self.set_running_or_notify_cancel()
        if flight:
            self._begun.set_result(flight)
        if not flight or flight.progress() >= 0:  # else nobody does it until somebody waits
            threading.Thread(target=self._run, name="libdcp-saving", daemon=False).start()

    def fence(self) -> None:
        """Returns once the memory may change: what was not written by then was copied."""
        with self._ending:
            if self._is_alive():
                self._begun.result().fence()

    def wait(self) -> Report:
        """Waits until the step is durable.

        Raises:
            libdcp.Error: the save failed, with the same status on all ranks; older steps are as they were.
        """
        return self.result()

    def result(self, timeout: float | None = None) -> Report:
        self._told = True
        if timeout is None:
            self._finish()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._told = True
        if timeout is None:
            self._finish()
        return super().exception(timeout)

    def cancel(self) -> bool:
        """Asks for the save to be given up, on all ranks. False, as it may come too late: :meth:`wait` says."""
        with self._alive:
            if self._is_alive():
                self._begun.result().cancel()
        return False

    def await_begin(self) -> None:
        """Returns once the store's group is free."""
        self._begun.exception()

    @property
    def has_failed(self) -> bool:
        return self.done() and super().exception() is not None

    def settle(self) -> None:
        """Before the store goes on: raises what nobody has heard of."""
        if self._told:
            self._finish()
        else:
            self.result()

    def _is_alive(self) -> bool:
        """Whether there is a flight, now or once it has begun."""
        return not self._freed and self._begun.exception() is None

    def _run(self) -> None:
        """Begins it, where it has not begun, and stays until it has ended, so that a program can't end before."""
        if not self._begun.done():
            try:
                self._begun.set_result(self._begin())
            except BaseException as e:
                self._begun.set_exception(e)
        nap = 0.001
        while not self._has_ended():
            time.sleep(nap)
            nap = min(2 * nap, 0.02)
        if not self._ends_alone:
            return
        self._finish()
        if self.has_failed and not self._told:  # perhaps nobody will ask
            log.error("an asynchronous save failed: %s", super().exception())

    def _has_ended(self) -> bool:
        with self._alive:
            return not self._is_alive() or self._begun.result().progress() != 0

    def _finish(self) -> None:
        """The first who comes here waits for the end and tells it, outside of the locks, as callbacks may come back."""
        with self._ending:
            if self._freed:
                return
            report = _capi.ReportStruct()
            failure = self._end(report)
        if failure is None:
            self.set_result(_options.report_of(report))
        else:
            self.set_exception(failure)

    def _end(self, report: _capi.ReportStruct) -> BaseException | None:
        while not self._has_ended():  # so that the flight is free for who cancels
            time.sleep(0.001)
        failure = None
        with self._alive:
            self._freed = True
            try:
                self._begun.result().wait(report)
            except BaseException as e:
                failure = e
        if self._owns_saved:
            self._saved.close()
        return self._failures.first or failure
