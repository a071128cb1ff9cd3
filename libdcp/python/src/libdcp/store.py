"""Saves and loads: stores of steps, and calls for one save or load."""

from __future__ import annotations

import atexit
import contextlib
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from . import _calls, _capi, _checked, _directory, _locks, _options, _paths, _signals
from ._calls import Loaded
from ._comm import Comm, attempted, working
from ._directory import Directory, Pin, step_path, steps
from ._layout import Layout
from ._options import LoadKeywords, Report, SaveKeywords
from ._paths import Path
from ._published import OnPublished, Published
from ._state import State
from ._tiers import Tier, Tiers
from .errors import EarlierFailure, Error, Status
from .saving import Flight, Saving, Worker, check_begin

if TYPE_CHECKING:
    from typing_extensions import Unpack  # missing from Python 3.10

log = logging.getLogger("libdcp")
T = TypeVar("T")

__all__ = ["Path", "Store", "Tier", "load", "save", "save_async", "step_path", "steps"]


def _agree_on_step(comm: Comm, step: int | None, fall_back: bool) -> None:
    """Agrees on which step a load means. Collective."""
    comm.agree_on_same("the step to load", f"step={step}, fall_back={fall_back}")


class _Unclosed:
    """What an open store holds. If the store is never closed, for example because a signal came before it was assigned
    to a name, this object's destructor releases what the store holds. The store itself has no destructor: it would also
    be called after a close, and Python loses the exceptions of signal handlers that run during a destructor.

    Attributes:
        saving: the background save.
    """

    def __init__(self, comm: Comm, backend: Directory | Tiers) -> None:
        self.saving: Saving | None = None
        self._comm = comm
        self._backend: Directory | Tiers | None = backend

    def close(self) -> None:
        backend, self._backend = self._backend, None
        if backend:
            backend.close()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():  # modules may have lost their names
            return
        needs_others = isinstance(self._backend, Tiers) and self._comm.size > 1
        is_saving = self.saving is not None and not self.saving.done()
        if self._backend and not (is_saving or needs_others):
            self.close()
            self._comm.close()


class _Filling:
    """Lists of stores that save in the background, so their slower stores may still have to be filled. The program does
    not end before they are filled: otherwise steps would be left incomplete, and the threads would call the package's
    functions while the interpreter is being freed."""

    def __init__(self) -> None:
        self._alone: weakref.WeakSet[Store] = weakref.WeakSet()  # a forgotten one is closed by its _Unclosed
        self._of_ranks: set[Store] = set()
        atexit.register(self._wait)

    def add(self, store: Store, ranks: int) -> None:
        if ranks > 1:
            self._of_ranks.add(store)
        else:
            self._alone.add(store)

    def discard(self, store: Store) -> None:
        self._alone.discard(store)
        self._of_ranks.discard(store)

    def _wait(self) -> None:
        for store in (*self._alone, *self._of_ranks):
            store._await_filling()


_filling = _Filling()


class Store:
    """A directory of steps, or a list of such directories, held for writing until it is closed. Collective; so are all
    of its methods, unless they say otherwise.

    Only one thread can use it at a time; others wait. Threads that open stores at the same time need a ``group`` each,
    since ranks cannot know which of a group's stores belong together. A function that a save or load of the store has
    called cannot use the store. An exception of a signal handler, for example KeyboardInterrupt, is raised once the
    call has given up; on other ranks it becomes a :class:`libdcp.Error` that names this rank.

    With a list, such as ``[Tier("/dev/shm/run", keep=2, private=True), Tier("/data/run", every=100)]``, an asynchronous
    save goes into the fastest store that is due. Slower ones that are due are then filled from its files in the
    background. :meth:`save` saves into all stores that are due, and always into the last one, whatever its ``every``
    is. A program that ends waits until its stores are filled. A load reads, from any store, the newest step that is
    complete, or can be completed from its redundancy.

    Args:
        directory: where the steps are; rank 0's value is used. Or a list of stores, fastest first: see :class:`Tier`.
        group: a torch.distributed group, an mpi4py communicator, or None: torch's default group if it is initialized,
            otherwise this process only. Calls wait for a missing rank as long as the torch group's timeout; up to five
            times as long if the rank dies while others connect to it by gloo, which they do when a store is opened, at
            its first asynchronous save, and in each call without a store.
        keep: how many complete steps remain after a save; 0: all.
        keep_every, keep_seconds, keep_best: steps that remain in addition: multiples of keep_every; one per keep_seconds
            of time; and the keep_best steps with the lowest values, or with ``keep_highest`` the highest, of
            ``keep_metric``. A save passes the value in ``about``: ``about={"eval_loss": 2.25}``.
        replace: a save replaces an existing step, and steps older than the newest can be saved. A list does not save a
            step again into stores that have received it since the list was opened.
        take_over: on file systems without locks, take over the store even if its last writer might still be running.
        stripe_count: on Lustre, the number of object servers that hold a file; -1: all.
        stripe_bytes: on Lustre, the bytes of a stripe.
        on_published: called on every rank with a step's number and folder once the step is durable, for an upload or a
            log, for example; with a list, for each store that gets the step. :meth:`save` and :meth:`close` call it
            before they return; for an asynchronous save, it is called by the thread that ends the save, or by the
            store's next call. It may use the store, for example :meth:`pin`, which keeps the step while it is copied.
            Its exceptions are raised by these calls, or by the next one; the step exists nevertheless.

    Raises:
        libdcp.Error: BUSY: another writer has the store; IO: the store cannot be written.
        ValueError: an option for retention or stripes is given with a list, whose stores have their own options; or the
            directory is a URL.

    A directory without steps that contains another program's checkpoints is accepted, since a run may keep both kinds
    side by side; a warning says what is there, and how to convert it to a step.
    """

    def __init__(self, directory: Path | Sequence[Tier], *, group: Any = None, keep: int = 0, replace: bool = False,
                 take_over: bool = False, stripe_count: int = 0, stripe_bytes: int = 0, keep_every: int = 0,
                 keep_seconds: int = 0, keep_best: int = 0, keep_metric: str = "", keep_highest: bool = False,
                 on_published: OnPublished | None = None) -> None:
        self._saving_step = 0
        self._told_late: BaseException | None = None  # the failure of a save, in the form that the next save has raised
        self._laid_out: Layout | None = None  # of the declared state in the last save, if that was asynchronous
        self._unclosed: _Unclosed | None = None  # None: the store is closed
        self._is_of_one_save = False  # if true, the end of the only save closes the store
        self._worker = Worker()
        self._calling: set[Saving] = set()  # the saves for which on_published has not returned
        self._published = Published(_checked.or_none_function("on_published", on_published))
        self._working = 0  # the thread that is inside the library, which may call functions of the program
        self._lock = _locks.lock()
        self._holder = 0  # the thread that holds the lock
        with _signals.Shield():
            self._comm = Comm(group)
            try:
                with self._comm.work():
                    self._backend = self._opened(directory, {
                        "keep": keep, "replace": replace, "take_over": take_over, "stripe_count": stripe_count,
                        "stripe_bytes": stripe_bytes, "keep_every": keep_every, "keep_seconds": keep_seconds,
                        "keep_best": keep_best, "keep_metric": keep_metric, "keep_highest": keep_highest})
                    self._unclosed = _Unclosed(self._comm, self._backend)
                    attempted(self._comm, self._backend.look)
                    self._comm.agree(_signals.pending())
            except BaseException:
                self._shut()
                raise

    def __reduce__(self) -> NoReturn:
        raise TypeError("a libdcp.Store can be neither copied nor pickled: open its directory anew")

    def _opened(self, directory: Path | Sequence[Tier], given: Mapping[str, Any]) -> Directory | Tiers:
        is_list = isinstance(directory, Sequence) and not isinstance(directory, (str, bytes))

        def check() -> tuple[str, dict[str, Any]]:
            options = _checked.checked("libdcp.Store", given, _checked.STORES)
            if not is_list:
                return _paths.given(cast(Path, directory), "directory", "libdcp.save(directory, step, state)"), options
            own = [name for name in (*_checked.POLICIES, *_checked.STRIPES) if options[name]]
            if own:
                raise ValueError(f"stores of a list have their own {' and '.join(own)}: see libdcp.Tier")
            return "", options
        place, options = attempted(self._comm, check)
        self._comm.agree_on_same("what they open", "a list of stores" if is_list else "one directory")
        if is_list:
            return Tiers(self._comm, cast(Sequence[Tier], directory), options["replace"], options["take_over"],
                         self._published.note, self._inside)
        self._comm.warn_of_paths(place)
        return Directory(self._comm, place, **options)

    def _note_published(self, step: int, folders: list[str]) -> None:
        for path in folders:
            self._published.note(step, path)

    def _after_saving(self, step: int, saving: Saving) -> None:
        """Called when an asynchronous save has ended."""
        try:
            if not saving.has_failed:
                self._note_published(step, saving.folders)
            self._report_quietly()
        finally:
            self._calling.discard(saving)

    def _report_quietly(self) -> None:
        """Calls on_published, unless this thread has the store: the function may wait for another thread that uses the
        store, so a call that has the store reports after it has released the store."""
        if self._holder != threading.get_ident():
            self._published.report_quietly()

    def _await_published(self) -> None:
        """Waits until the worker's thread has called on_published for the background save: the function may use the
        store."""
        saving = self._saving
        while saving in self._calling and saving.ends_alone and self._worker.is_of_this_process and (
                not self._worker.is_this_thread) and _signals.pending() is None:
            time.sleep(0.001)

    def _await_filling(self) -> None:
        """Called when the program ends. The store stays open, since functions that are called later may use it."""
        if not self._worker.is_of_this_process:
            return
        with self._hold():
            while self._is_open and isinstance(self._backend, Tiers) and not self._backend.is_filled():
                self._raise_pending()
                time.sleep(0.001)

    def _shut(self) -> None:
        _filling.discard(self)
        unclosed, self._unclosed = self._unclosed, None
        if unclosed:
            unclosed.close()
        self._comm.close()

    @property
    def _is_open(self) -> bool:
        return self._unclosed is not None

    @property
    def _saving(self) -> Saving | None:
        """The background save."""
        unclosed = self._unclosed  # which another thread may remove
        return unclosed.saving if unclosed else None

    @_saving.setter
    def _saving(self, saving: Saving | None) -> None:
        if self._unclosed:
            self._unclosed.saving = saving

    @contextlib.contextmanager
    def _hold(self) -> Iterator[None]:
        """A context in which this thread has the store, and other threads wait for it.

        Raises:
            RuntimeError: the caller is a function that a call of this store has called, so it would wait for itself.
        """
        with self._comm.work():
            if _options.calls_back(self):
                raise RuntimeError("a function that a store's save or load has called can't use the store")
            while not self._lock.acquire(timeout=_signals.ASK_S):
                self._raise_pending()
            try:
                if self._working == threading.get_ident():
                    raise RuntimeError("a signal handler can't use the store whose save or load it has interrupted")
                outer, self._holder = self._holder, threading.get_ident()
                try:
                    yield
                finally:
                    self._holder = outer
            finally:
                self._lock.release()

    def _raise_pending(self) -> None:
        pending = _signals.pending()
        if pending is not None:
            raise pending

    @contextlib.contextmanager
    def _work(self) -> Iterator[BaseException | None]:
        """A context in which a call of the library can be made. First waits for the background save; calls on_published
        for the saved step, which the call may remove; and yields the save's failure if that was not reported yet."""
        self._refuse_forked()
        earlier, is_yielded = None, False
        try:
            with _signals.Shield():
                earlier = self._settle_and_report()
                with self._hold():
                    earlier = self._settle_again(earlier)
                    with self._inside():
                        is_yielded = True
                        yield earlier
        except BaseException as e:
            if not is_yielded:
                self._log_unless_raised(earlier, e)
            raise

    @contextlib.contextmanager
    def _raising_work(self) -> Iterator[BaseException | None]:
        """The same for a call that reports the save's failure only by raising it. If something else is raised, such as
        a signal handler's exception, logs the failure."""
        earlier = None
        try:
            with self._work() as earlier:
                yield earlier
        except BaseException as e:
            self._log_unless_raised(earlier, e)
            raise

    def _log_unless_raised(self, earlier: BaseException | None, raised: BaseException) -> None:
        """Logs the failure of the background save, of which nobody would learn otherwise."""
        if earlier is not None and earlier is not raised:
            log.error("step %d was not saved: %s", self._saving_step, earlier)

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        """A context in which this thread has the store and calls the library: no signal handler can use the store."""
        outer, self._working = self._working, threading.get_ident()
        try:
            yield
        finally:
            self._working = outer

    def _refuse_forked(self) -> None:
        if not self._comm.is_of_this_process:
            raise Error("this process was forked from the one that opened the store: each process must open its own stores",
                        status=Status.STATE)

    def declare(self, state: Mapping[Any, Any]) -> State:
        """Examines a state's tensors once, for many saves of the same memory: pass the result instead of the state. Not
        collective. The arrays' addresses, shapes and types must not change; their contents may."""
        declared = State(state, self._comm.rank, self._comm.size)
        declared.has_chosen_rank = False
        return declared

    def save(self, step: int, state: Mapping[Any, Any] | State, *, json: Mapping[str, Any] | None = None,
             **options: Unpack[SaveKeywords]) -> Report:
        """Saves a step; see :func:`libdcp.save`. If an earlier asynchronous save has failed, and that was not reported
        yet, raises that failure once this step is saved; the message says that this step was saved."""
        def made(earlier: BaseException | None) -> Report:
            self._laid_out = None
            report = _capi.ReportStruct()
            with _calls.Prepared(self._comm, state, earlier=earlier, owner=self) as prepared:
                made = prepared.save_options(json, options)
                number = prepared.step(step)  # before the ranks unite: otherwise a list compares the ranks' steps first
                prepared.unite(made.replicas)
                self._backend.save(number, prepared, made, report)
            self._note_published(step, self._backend.folders(step))
            return _options.report_of(report)
        report = self._after_earlier(step, "was saved", made)
        self._published.report()
        return report

    def save_async(self, step: int, state: Mapping[Any, Any] | State, *, json: Mapping[str, Any] | None = None,
                   copy: bool = True, copy_bytes: int | None = None, **options: Unpack[SaveKeywords]) -> Saving:
        """Begins to save a step in the background; see :func:`libdcp.save_async`.

        The memory of copies is kept from save to save. Starting with the second save of a declared state into a
        directory, a thread does everything but the copy and the JSON: the call waits for no other rank, and with
        ``copy=False`` returns at once. The first save lays out the files, and makes groups for the threads.

        If the previous save has failed, or ``on_published`` has raised an exception, and that was not reported yet, the
        call raises that failure after this save has begun. This save continues, and :meth:`fence`, the next save and
        :meth:`close` refer to it. After any other exception, Ctrl-C included, nothing reads the state's memory any
        more. But if a signal arrives just after the call has returned, the save continues in the background: code that
        catches the signal handler's exception must then call :meth:`fence` before it changes the memory."""
        def made(earlier: BaseException | None) -> Saving:
            with _calls.Prepared(self._comm, state, earlier=earlier, owner=self) as prepared:
                made = prepared.save_options(json, options)
                prepared.copy_first(made, copy, copy_bytes)
                return self._begun(state, prepared.step(step), prepared, made)
        before = self._saving
        try:
            saving = self._after_earlier(step, "is being saved", made)
        except BaseException as e:
            self._let_go(before, e)
            raise
        try:
            self._published.report()
        except Exception:
            raise  # about an earlier step: this save continues
        except BaseException as e:
            self._let_go(before, e)
            raise
        return saving

    def _let_go(self, before: Saving | None, raised: BaseException) -> None:
        """Called if the call that begins a save raises an exception: the caller, who does not get the save, may change
        the memory, so the save is given up. It continues only if the exception is the failure of an earlier save."""
        saving = self._saving
        if saving is not None and saving is not before and raised is not self._told_late:
            saving.let_go()

    def _begun(self, state: Mapping[Any, Any] | State, step: int, prepared: _calls.Prepared,
               options: _capi.SaveOptions) -> Saving:
        def begin() -> Flight:
            prepared.unite(options.replicas)
            return self._backend.begin(step, prepared, options)
        check_begin()
        layout = prepared.layout
        is_laid_out = layout is not None and layout is self._laid_out and not prepared.has_failed
        backend = self._backend
        if isinstance(backend, Tiers):
            _filling.add(self, self._comm.size)
        is_copied = (bool(options.copy_bytes) and is_laid_out and isinstance(backend, Directory)
                     and prepared.copy_now(lambda handle: backend.copy(handle, options)))
        options.is_copied = int(is_copied)
        beside = (is_laid_out and not prepared.has_failed and (is_copied or not options.copy_bytes)
                  and not self._calling)  # otherwise the worker's thread may be in on_published, and wait for the store
        self._laid_out = None
        flight = None if beside else begin()
        saving = Saving(begin, flight, self._backend.ends_alone, *prepared.release(), prepared.failures,
                        self._worker, self._hold, self._close_after_save if self._is_of_one_save else None, is_copied)
        if self._published.is_used:
            self._calling.add(saving)
            saving.add_done_callback(lambda ended: self._after_saving(step, saving))
        self._saving = saving
        if _signals.pending() is not None:  # the caller will not get the save
            saving.give_up()
        self._saving_step = step
        self._laid_out = layout if self._may_begin_beside() else None
        return saving

    def _close_after_save(self) -> None:
        with self._hold():
            self._saving = None  # that save has ended, and reports its own outcome
            self.close()

    def _may_begin_beside(self) -> bool:
        return self._comm.threads and isinstance(self._backend, Directory)

    def is_due(self, step: int) -> bool:
        """Returns true if a save of the step would be stored: always for a directory; for a list, if a store is due.
        Not collective, and the same on all ranks: until the next save or load, a background save counts as one that has
        not ended."""
        self._check_open()
        number = _checked.step(step)
        if isinstance(self._backend, Directory):
            return True
        with self._hold():
            return self._backend.is_due(number)

    def load(self, state: Mapping[Any, Any] | State, *, step: int | None = None, fall_back: bool = True,
             **options: Unpack[LoadKeywords]) -> Loaded:
        """Loads a step, by default the newest, and continues from it: the next save sets later steps aside. Use
        :func:`libdcp.load` and :func:`libdcp.read` to only read a step. See :func:`libdcp.load`.

        Args:
            fall_back: if the checksums of the newest step show damage, use the newest undamaged one, with a warning;
                the damaged steps then count as later ones. A step that could not be read is an error, and a step that
                was requested by number is never replaced by another one. False: damage is an error.
        """
        with self._raising_work() as earlier:
            def check() -> tuple[int | None, bool, LoadKeywords]:
                if earlier:
                    raise earlier
                given = _checked.checked("load", {"step": step, "fall_back": fall_back}, _checked.LOADS)
                return given["step"], given["fall_back"], _options.checked_load(options)
            number, falls_back, own = attempted(self._comm, check)
            _agree_on_step(self._comm, number, falls_back)
            loaded = self._backend.load(state, number, falls_back, own)
            self._backend.continue_from(loaded["step"])
            return loaded

    def steps(self) -> list[int]:
        """The complete steps, ascending. Not collective for a directory."""
        self._check_open()
        if isinstance(self._backend, Directory):
            return self._backend.steps()
        if self._comm.size > 1:
            self._refuse_forked()
        with self._hold():
            return self._backend.steps()

    def newest(self) -> int | None:
        """The newest complete step, the same on all ranks; None if there is none."""
        if self._comm.size > 1:
            self._refuse_forked()
        with self._hold():
            self._check_open()
            saving = self._saving
            if saving is not None:
                saving.await_begin()
            if isinstance(self._backend, Tiers):
                return max(self._backend.steps(), default=None)
            backend, comm = self._backend, self._comm
            found = attempted(comm, lambda: -1 if comm.rank else max(backend.steps(), default=-1))
            found, = comm.numbers([found])
            return None if found < 0 else found

    def path(self, step: int) -> str:
        """The folder of a step; only for a directory. Not collective."""
        return step_path(self._directory("path").path, step)

    def fence(self) -> None:
        """Waits until the memory of the last asynchronous save may change. This matters if that save was made with
        ``copy=False``. Returns at once if there is no such save."""
        saving = self._saving
        if saving is not None:
            saving.fence()

    def continue_from(self, step: int) -> None:
        """Declares that the run continues from that step, whether or not a store has it: the next save sets later ones
        aside, as ``.abandoned-step-...``, and they are removed according to ``keep``. :meth:`load` does the same."""
        number = _checked.step(step)
        with self._raising_work() as earlier:
            self._backend.continue_from(number)
            if earlier:
                raise earlier

    def remove(self, step: int) -> None:
        """Removes a step, durably; only for a directory. Refuses to remove the newest step that is known to be
        intact."""
        with self._raising_work() as earlier:
            def check() -> int:
                if earlier:
                    raise earlier
                return _checked.step(step)
            self._directory("remove").remove(attempted(self._comm, check))

    def pin(self, step: int) -> Pin:
        """Keeps a step of a directory, whatever ``keep`` says, until the result is released; meanwhile :meth:`remove`
        refuses to remove it. The pin outlasts the store's close, and other writers respect it, too. Not collective:
        each rank pins for itself. :class:`libdcp.Checkpoint` pins the step that it has open.

        Raises:
            libdcp.Error: NOT_FOUND: there is no such step; UNSUPPORTED: the file system has no locks.
        """
        self._check_open()
        return Pin(self._directory("pin").path, step)

    def _directory(self, what: str) -> Directory:
        if not isinstance(self._backend, Directory):
            raise ValueError(f"{what}: this store is a list of directories: close it, and open the one that is meant, "
                             "if all ranks share it, as a libdcp.Store of its own")
        return self._backend

    def _check_open(self) -> None:
        if not self._is_open:
            raise ValueError("the store is closed")

    def _settle(self) -> BaseException | None:
        """Waits for the background save. Returns a failure that this rank has not reported yet, instead of raising it:
        other ranks may already have reported the failure to their programs, and would then wait in vain for this rank
        in the collective call that follows. A signal handler that uses the store meanwhile ends the save here, too."""
        self._check_open()
        saving = self._saving
        if saving is None:
            return None
        saving.refuse_interrupted()
        try:
            saving.settle()
        except BaseException as e:
            return e
        finally:
            if self._saving is saving:  # otherwise a handler has begun another one, or has closed the store
                self._saving = None
            if saving.has_failed:
                self._laid_out = None
        return None

    def _settle_and_report(self) -> BaseException | None:
        """Does what :meth:`_settle` does, and calls on_published once this thread no longer has the store, since the
        function may use the store in another thread."""
        with self._hold():
            earlier = self._settle()
        self._report_quietly()
        return earlier

    def _settle_again(self, earlier: BaseException | None) -> BaseException | None:
        """Another thread may have begun a save while this one did not have the store. Returns the first failure."""
        if earlier is not None and not self._is_open:
            raise earlier
        late = self._settle()
        if earlier and late:
            log.error("a save has failed: %s", late)
        return earlier or late

    def _after_earlier(self, step: int, how: str, save: Callable[[BaseException | None], T]) -> T:
        """Makes a save. If the background save has failed, and that was not reported on some rank, makes this save
        first and then raises the failure on all ranks: otherwise two steps would be lost."""
        with self._work() as earlier:
            return self._made_after(earlier, step, how, save)

    def _made_after(self, earlier: BaseException | None, step: int, how: str,
                    save: Callable[[BaseException | None], T]) -> T:
        if earlier is not None:
            log.error("step %d was not saved: %s", self._saving_step, earlier)
        try:
            return save(earlier)
        except EarlierFailure as e:  # on all ranks, and before anything was done
            lost, told = self._saving_step, e.failure
        try:
            save(None)
        except Exception as e:
            e.__cause__ = e.__cause__ or told
            raise
        if isinstance(told, Error):
            told = told.saying(f"step {lost} was not saved: {told}; step {step}, which this call is for, {how}")
        self._told_late = told
        raise told

    def close(self) -> None:
        """Waits for a background save and, for a list, until its stores are filled; then releases the store. Every rank
        must call it."""
        earlier = None
        try:
            with _signals.Shield():
                self._await_published()
                try:
                    earlier = self._settle_and_report() if self._is_open else None
                    with self._hold():
                        if self._is_open:
                            earlier = self._settle_again(earlier)
                            with self._inside():
                                self._shut()
                        if earlier:
                            raise earlier
                finally:
                    if not self._is_open:
                        self._worker.close()  # whose thread may wait for the store
        except BaseException as e:
            self._log_unless_raised(earlier, e)
            raise
        self._published.report()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


def save(directory: Path, step: int, state: Mapping[Any, Any], *, group: Any = None,
         json: Mapping[str, Any] | None = None, keep: int = 0, replace: bool = False,
         **options: Unpack[SaveKeywords]) -> Report:
    """Saves a state as a step of a directory: complete and durable when it returns. Collective.

    Args:
        directory: the directory of the steps; ``directory/step-00000120`` is step 120.
        step: the step's number.
        state: a (nested) mapping to numpy arrays, torch tensors, DTensors and :class:`libdcp.Shard`. A top-level key
            whose value is a mapping is a section: ``{"model": {"a.b": t}}`` and ``{"model": {"a": {"b": t}}}`` are both
            ``/model/a.b`` in the file; tensors at the top level are in ``/model``. An optimizer's section in the form
            of torch's ``get_state_dict`` becomes ``/optimizer/exp_avg/<parameter>`` and so on. What is not a tensor
            goes into the checkpoint's JSON with its type: numbers, texts, lists, tuples, sets, mappings with any keys,
            bytes, Enums, dataclasses and so on (docs/format.md). Nothing is ever pickled. An object with
            ``state_dict()`` and ``load_state_dict()``, such as a module, at the top level or in mappings, is saved and
            loaded through these. Ranks may have different keys, as pipeline stages do, or a single rank may have a full
            state dict: the union is saved, and a tensor's holders are the ranks that name it. The same holds for what
            is not a tensor; an optimizer's groups are united over all ranks.
        group: see :class:`Store`.
        json: members of the checkpoint's JSON object.
        keep, replace: see :class:`Store`.
        layout: "global", one HDF5 file; or "sharded", one file per rank.
        replicas: what to do if several ranks have the same elements of a tensor, or the same key of the state or of
            ``json``, but with different values: "warn" logs the difference, and saves what the lowest rank has; "check"
            fails; "trust" does not compare.
        engine, shards, staging_bytes, make_room: as in ``dcp/save.h``.
        about: members of the step's about.json, which says who saved it, and when; not part of the state.
        progress: called now and then with the number of bytes done and the total; an exception ends the save on all
            ranks.

    Raises:
        libdcp.Error: the same on all ranks; older steps are not changed.
        TypeError: an object that is not a tensor and that JSON cannot represent; the message names the key.
    """
    with _signals.Shield(), Store(directory, group=group, keep=keep, replace=replace) as store:
        return store.save(step, state, json=json, **options)


def save_async(directory: Path, step: int, state: Mapping[Any, Any], *, group: Any = None,
               json: Mapping[str, Any] | None = None, keep: int = 0, replace: bool = False, copy: bool = True,
               copy_bytes: int | None = None, **options: Unpack[SaveKeywords]) -> Saving:
    """Begins a save like :func:`save` and returns; a thread of the library does the work.

    The step is the state at the time of the call: the part that this rank writes is copied before the call returns,
    whatever kinds of arrays the state has. The result's ``wait()`` returns the report once the step is durable. For
    saves at many steps, a :class:`Store` is faster, since it keeps the plan and the memory of copies.

    A program that ends earlier waits for the save. If the save then fails, that is only logged, and the program's exit
    status does not change: a program whose status must tell of its last step calls ``wait()``, or closes the store.

    Args:
        copy: False: nothing is copied, and the call returns sooner; the state's memory must not change before the
            result's ``fence()`` returns.
        copy_bytes: how many bytes each rank may copy; None: half of the rank's share of its host's available memory,
            which the host's ranks share equally, within the limits of the system, control groups and resource limits.
            If more must be copied, or no thread can do the work, the call itself writes: it returns once the rest is in
            the copy, or everything is written.
        options: these, and the other arguments, are those of :func:`save`.
    """
    store = None
    try:
        with _signals.Shield():
            store = Store(directory, group=group, keep=keep, replace=replace)
            store._is_of_one_save = True
            try:
                return store.save_async(step, state, json=json, copy=copy, copy_bytes=copy_bytes, **options)
            except BaseException:
                if store._saving is None:
                    store.close()
                raise
    except BaseException as e:
        if store is not None:
            store._let_go(None, e)
        raise


def load(path: Path, state: Mapping[Any, Any], *, group: Any = None, step: int | None = None, fall_back: bool = True,
         **options: Unpack[LoadKeywords]) -> Loaded:
    """Fills the memory of a state's tensors from a checkpoint, on any number of ranks. Collective.

    Args:
        path: a step's folder, or a directory of steps, whose newest step is loaded.
        state: as in :func:`save`; its tensors are written in place. What is not a tensor is replaced in its mapping.
            Lists and other containers, counters, defaultdicts and empty mappings are replaced as a whole, by new ones.
            Objects get everything that was stored for them, as from torch.load. If their own state dicts lack a tensor
            at this time, or have it with another shape, the tensor becomes a new array on the CPU, which is whole even
            if the tensor was saved in shards. The same holds for tensors in lists and other containers. But a
            torch.nn.Module that loads as torch's own modules do refuses tensors that it does not name, or whose shapes
            differ. For an Enum, a dataclass, a named tuple or another user-defined class, the state must contain an
            instance, or :func:`libdcp.register` must have been called with the class; otherwise, the saved instance is
            loaded as the plain value of which it consists, with a warning. Each rank loads the keys that its own state
            has.
        group: see :class:`Store`.
        step: the number of a step in that directory, to be loaded instead of the newest one.
        fall_back: if the newest step of a directory is damaged, load the newest undamaged one, as :meth:`Store.load`
            does.
        only: globs of paths, such as ``"/model/*"``, with the rules of ``fnmatch(3)`` without flags: nothing else is
            loaded. What is not a tensor has a path, too, such as ``"/scheduler/last_epoch"`` or, at the top level,
            ``"/epoch"``.
        rename: maps names in the state to names in the checkpoint; a ``*`` in both stands for the same text.
        cast: tensors of a different dtype are converted; without it, they are an error.
        strict: the checkpoint and all ranks' states together must have the same tensors and other values, nested
            members included: what only one of the two has is an error. But whole members of the checkpoint's JSON, such
            as ``"epoch"``, may be absent from the top level of the states. If not strict, what the checkpoint lacks is
            left unchanged; the result's ``.missing`` and ``.unexpected`` are the paths that the checkpoint and the
            states lack, respectively. With ``only``, what only the checkpoint has is never an error, and
            ``.unexpected`` contains the selected part of it. An optimizer keeps its ``param_groups`` if the checkpoint,
            like dcp-train's, has only tensors. If torch tensors share their memory, like tied weights, the checkpoint
            needs only one of them. If dcp-train saved the checkpoint, an optimizer's ``step`` is set to the number of
            updates, for each parameter whose moments are in the checkpoint.
        engine: as in ``dcp/save.h``.
        progress: called now and then with the number of bytes that have arrived and the total.

    Returns:
        A dict: the checkpoint's JSON object, with "step".

    Raises:
        libdcp.Error: the same on all ranks: NOT_FOUND, MISMATCH, or CORRUPT, which names tensor and block.
    """
    with working(group) as comm:
        def check() -> tuple[str, int | None, bool, LoadKeywords]:
            place = _paths.given(path, "path", "libdcp.load(path, state)")
            given = _checked.checked("load", {"step": step, "fall_back": fall_back}, _checked.LOADS)
            return place, given["step"], given["fall_back"], _options.checked_load(options)
        place, number, falls_back, own = attempted(comm, check)
        comm.warn_of_paths(place)
        _agree_on_step(comm, number, falls_back)
        return _directory.load(comm, place, state, number, falls_back, own)
