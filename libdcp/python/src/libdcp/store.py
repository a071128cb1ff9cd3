"""Saving and loading: stores of steps, and calls for one save or load."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from . import _calls, _capi, _checked, _directory, _locks, _options, _paths, _signals
from ._calls import Loaded
from ._comm import Comm, working
from ._directory import Directory, Pin, step_path, steps
from ._layout import Layout
from ._options import LoadKeywords, Report, SaveKeywords
from ._paths import Path
from ._state import State
from ._tiers import Tier, Tiers
from .errors import EarlierFailure, Error
from .saving import Flight, Saving, Worker, check_begin

if TYPE_CHECKING:
    from typing_extensions import Unpack  # Python 3.10 has none of its own

log = logging.getLogger("libdcp")
T = TypeVar("T")

__all__ = ["Path", "Store", "Tier", "load", "save", "save_async", "step_path", "steps"]


def _agreed(comm: Comm, make: Callable[[], T]) -> T:
    """What the function returns; what is wrong on one rank is raised there, and on the others that it was. Collective."""
    failure, made = None, None
    try:
        made = make()
    except Exception as e:
        failure = e
    comm.agree(failure)
    assert made is not None
    return made


def _agree_on_step(comm: Comm, step: int | None, fall_back: bool) -> None:
    """Which step a load means. Collective."""
    comm.agree_on_same("the step to load", f"step={step}, fall_back={fall_back}")


class _Unclosed:
    """What a store that is open holds; where it is never closed, as where a signal came before it had a name, that goes
    with this. Python would call a destructor of the store's own after its close, too, and lose in it what a handler of a
    signal raises.

    Attributes:
        saving: in flight.
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
        if self._backend and not (self.saving or needs_others):
            self.close()
            self._comm.close()


class Store:
    """A directory of steps, held for writing until it is closed, or a list of them. Collective; all of its methods are,
    too, but for those that say otherwise.

    One thread uses it at a time, and others wait. A function that its save or load has called can't use it. What a
    handler of a signal raises meanwhile, KeyboardInterrupt for example, is raised once the call was given up; on other
    ranks that is a :class:`libdcp.Error` which names this one.

    Of a list, such as ``[Tier("/dev/shm/run", keep=2, private=True), Tier("/data/run", every=100)]``, an asynchronous
    save goes into the fastest store that is due; slower ones that are due are filled from its files in the background.
    That begins once the save has been waited for, or with the store's next call.
    :meth:`save` saves into all that are due and, whatever its ``every`` says, into the last one. A load takes the
    newest step of all that is whole, or can be made so from its redundancy.

    Args:
        directory: where the steps are; rank 0's counts. Or stores, fastest first: :class:`Tier`.
        group: a torch.distributed group, an mpi4py communicator, or None: torch's default group where that is
            initialized, else this process alone. A rank that does not come is waited for as long as the torch group's
            timeout says; up to five times as long where it dies while others connect to it by gloo, which they do when a
            store is opened, at its first asynchronous save, and in each call without a store.
        keep: how many complete steps stay after a save; 0: all.
        replace: a save of a step that exists replaces it, and older steps than the newest can be saved. A list does not
            save a step again into those that have got it since the list was opened.
        take_over: on file systems without locks, take the store also where its last writer may still run.
        stripe_count: on Lustre, over how many object servers a file goes; -1: all.
        stripe_bytes: on Lustre, the bytes of a stripe.

    Raises:
        libdcp.Error: BUSY, another writer has it; IO, it can't be written.
        ValueError: ``keep`` or a stripe beside a list, whose stores have their own; or the directory is a URL.

    A directory without steps that has another program's checkpoints is taken, as runs keep theirs side by side; a
    warning says what is there, and how a step is made of it.
    """

    def __init__(self, directory: Path | Sequence[Tier], *, group: Any = None, keep: int = 0, replace: bool = False,
                 take_over: bool = False, stripe_count: int = 0, stripe_bytes: int = 0) -> None:
        self._saving_step = 0
        self._told_late: BaseException | None = None  # of a save that failed: what the call of the next one has raised
        self._laid_out: Layout | None = None  # of a declared state that the last save was an asynchronous one of
        self._unclosed: _Unclosed | None = None  # None: it is closed
        self._is_of_one_save = False  # which closes it
        self._worker = Worker()
        self._working = 0  # the thread that is within the library, which may call functions of the program
        self._lock = _locks.lock()
        with _signals.Shield():
            self._comm = Comm(group)
            try:
                with self._comm.work():
                    self._backend = self._opened(directory, {"keep": keep, "replace": replace, "take_over": take_over,
                                                             "stripe_count": stripe_count, "stripe_bytes": stripe_bytes})
                    self._unclosed = _Unclosed(self._comm, self._backend)
                    self._comm.agree(_signals.pending())
            except BaseException:
                self._shut()
                raise

    def _opened(self, directory: Path | Sequence[Tier], given: Mapping[str, Any]) -> Directory | Tiers:
        is_list = isinstance(directory, Sequence) and not isinstance(directory, (str, bytes))

        def check() -> tuple[str, dict[str, Any]]:
            options = _checked.checked("libdcp.Store", given, _checked.STORES)
            if not is_list:
                return _paths.given(cast(Path, directory), "directory", "libdcp.save(directory, step, state)"), options
            if options["keep"] or options["stripe_count"] or options["stripe_bytes"]:
                raise ValueError("of a list each store has its keep, stripe_count and stripe_bytes: see libdcp.Tier")
            return "", options
        place, options = _agreed(self._comm, check)
        self._comm.agree_on_same("what they open", "a list of stores" if is_list else "one directory")
        if is_list:
            return Tiers(self._comm, cast(Sequence[Tier], directory), options["replace"], options["take_over"])
        return Directory(self._comm, place, **options)

    def _shut(self) -> None:
        unclosed, self._unclosed = self._unclosed, None
        if unclosed:
            unclosed.close()
        self._comm.close()

    @property
    def _is_open(self) -> bool:
        return self._unclosed is not None

    @property
    def _saving(self) -> Saving | None:
        """In flight."""
        unclosed = self._unclosed  # which another thread may take away
        return unclosed.saving if unclosed else None

    @_saving.setter
    def _saving(self, saving: Saving | None) -> None:
        if self._unclosed:
            self._unclosed.saving = saving

    @contextlib.contextmanager
    def _hold(self) -> Iterator[None]:
        """The store is this thread's within it; others wait.

        Raises:
            RuntimeError: the library has called what calls this, to which it would have to wait for itself.
        """
        with self._comm.work():
            if _options.calls_back(self):
                raise RuntimeError("a function that a store's save or load has called can't use the store")
            while not self._lock.acquire(timeout=_signals.ASK_S):
                self._raise_pending()
            try:
                if self._working == threading.get_ident():
                    raise RuntimeError("a handler of a signal can't use the store in whose save or load it came")
                yield
            finally:
                self._lock.release()

    def _raise_pending(self) -> None:
        pending = _signals.pending()
        if pending is not None:
            raise pending

    @contextlib.contextmanager
    def _work(self) -> Iterator[BaseException | None]:
        """For one call of the library, once the save in flight has been waited for; what nobody has heard of it."""
        with self._hold():
            earlier = self._settle()
            self._working = threading.get_ident()
            try:
                yield earlier
            finally:
                self._working = 0

    def declare(self, state: Mapping[Any, Any]) -> State:
        """Looks at a state's tensors once, for many saves of the same memory: pass what this returns in its place. Not
        collective. The arrays' places in memory, shapes and types must stay; their contents may change."""
        return State(state, self._comm.rank, self._comm.size)

    def save(self, step: int, state: Mapping[Any, Any] | State, *, json: Mapping[str, Any] | None = None,
             **options: Unpack[SaveKeywords]) -> Report:
        """Saves a step; see :func:`libdcp.save`. Where an asynchronous save before it has failed, and nobody was told, it
        raises that once this one is done: the message says that this step was saved."""
        def made(earlier: BaseException | None) -> Report:
            self._laid_out = None
            report = _capi.ReportStruct()
            with _calls.Prepared(self._comm, state, earlier=earlier, owner=self) as prepared:
                made = prepared.save_options(json, options)
                prepared.unite(made.replicas)
                self._backend.save(prepared.step(step), prepared, made, report)
            return _options.report_of(report)
        return self._after_earlier(step, "was saved", made)

    def save_async(self, step: int, state: Mapping[Any, Any] | State, *, json: Mapping[str, Any] | None = None,
                   copy: bool = True, copy_bytes: int | None = None, **options: Unpack[SaveKeywords]) -> Saving:
        """Begins to save a step beside what the program does; see :func:`libdcp.save_async`.

        The memory of copies is kept from save to save. From the second save of a declared state into a directory on all
        but the copy and the JSON is a thread's work: the call waits for no other rank, and with ``copy=False`` returns at
        once. The first save lays the files out, and makes groups for the threads.

        Where the save before it has failed, and nobody was told, it raises that once this one has begun, which goes on:
        :meth:`fence`, the next save and :meth:`close` mean it. Whatever else it raises, Ctrl-C too, nothing reads the
        state's memory any more then. A signal that comes as it has just returned finds a save in flight, and whoever
        catches what the handler raises calls :meth:`fence` before the memory changes."""
        def made(earlier: BaseException | None) -> Saving:
            with _calls.Prepared(self._comm, state, earlier=earlier, owner=self) as prepared:
                made = prepared.save_options(json, options)
                prepared.copy_first(made, copy, copy_bytes)
                return self._begun(state, prepared.step(step), prepared, made)
        before = self._saving
        try:
            return self._after_earlier(step, "is being saved", made)
        except BaseException as e:
            self._let_go(before, e)
            raise

    def _let_go(self, before: Saving | None, raised: BaseException) -> None:
        """The call that begins a save raises something: the caller, who will not have the save, may change the memory.
        But a save after one that has failed goes on, as the caller hears of that one."""
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
        is_laid_out = layout is not None and layout is self._laid_out
        backend = self._backend
        is_copied = (bool(options.copy_bytes) and is_laid_out and isinstance(backend, Directory)
                     and prepared.copy_now(lambda handle: backend.copy(handle, options)))
        options.is_copied = int(is_copied)
        beside = is_laid_out and prepared.failures.first is None and (is_copied or not options.copy_bytes)
        self._laid_out = None
        flight = None if beside else begin()
        saving = Saving(begin, flight, self._backend.ends_alone, *prepared.release(), prepared.failures,
                        self._worker, self._hold, self._close_after_save if self._is_of_one_save else None, is_copied)
        self._saving = saving
        if _signals.pending() is not None:  # the caller will not have it
            saving.give_up()
        self._saving_step = step
        self._laid_out = layout if self._may_begin_beside() else None
        return saving

    def _close_after_save(self) -> None:
        with self._hold():
            self._saving = None  # it has ended, and tells how itself
            self.close()

    def _may_begin_beside(self) -> bool:
        return self._comm.threads and self._backend.ends_alone

    def is_due(self, step: int) -> bool:
        """Whether a save of the step would go anywhere: of a directory always, of a list where one is due. Not
        collective, and the same on all ranks."""
        self._check_open()
        number = _checked.step(step)
        if isinstance(self._backend, Directory):
            return True
        with self._hold():
            return self._backend.is_due(number)

    def load(self, state: Mapping[Any, Any] | State, *, step: int | None = None, fall_back: bool = True,
             **options: Unpack[LoadKeywords]) -> Loaded:
        """Loads a step, the newest one unless it is named, and goes on from it: later steps are set aside by the next
        save. :func:`libdcp.load` and :func:`libdcp.read` only look at one. See :func:`libdcp.load`.

        Args:
            fall_back: where the newest step is found damaged, by its checksums, take the newest that is not, with a
                warning; the damaged ones are later steps then. What could not be read is an error of its own, and no step
                that is named is replaced by another one. False: damage is an error."""
        with self._work() as earlier:
            def check() -> tuple[int | None, bool, LoadKeywords]:
                if earlier:
                    raise earlier
                given = _checked.checked("load", {"step": step, "fall_back": fall_back}, _checked.LOADS)
                return given["step"], given["fall_back"], _options.checked_load(options)
            number, falls_back, own = _agreed(self._comm, check)
            _agree_on_step(self._comm, number, falls_back)
            loaded = self._backend.load(state, number, falls_back, own)
            self._backend.continue_from(loaded["step"])
            return loaded

    def steps(self) -> list[int]:
        """The complete steps, ascending. Of a directory not collective."""
        self._check_open()
        if isinstance(self._backend, Directory):
            return self._backend.steps()
        with self._hold():
            return self._backend.steps()

    def newest(self) -> int | None:
        """The newest complete step, the same on all ranks; None: there is none."""
        with self._hold():
            self._check_open()
            saving = self._saving
            if saving is not None:
                saving.await_begin()
            if isinstance(self._backend, Tiers):
                return max(self._backend.steps(), default=None)
            found = max(self._backend.steps(), default=-1) if self._comm.rank == 0 else -1
            found = self._comm.first(found)
            return None if found < 0 else found

    def path(self, step: int) -> str:
        """The folder of a step, of a directory. Not collective."""
        return step_path(self._directory("path").path, step)

    def fence(self) -> None:
        """Returns once the memory of the last asynchronous save may change, which matters after one with
        ``copy=False``; at once where none is in flight."""
        saving = self._saving
        if saving is not None:
            saving.fence()

    def continue_from(self, step: int) -> None:
        """Says that the run goes on from that step, whether or not a store has it: later ones are set aside by the next
        save, as ``.abandoned-step-...``, and are removed as ``keep`` says. :meth:`load` says it, too."""
        number = _checked.step(step)
        with self._work() as earlier:
            self._backend.continue_from(number)
            if earlier:
                raise earlier

    def remove(self, step: int) -> None:
        """Removes a step, durably, of a directory. The newest one that is known to be intact is refused."""
        with self._work() as earlier:
            def check() -> int:
                if earlier:
                    raise earlier
                return _checked.step(step)
            self._directory("remove").remove(_agreed(self._comm, check))

    def pin(self, step: int) -> Pin:
        """Keeps a step of a directory, whatever ``keep`` says, until what this returns is released; meanwhile
        :meth:`remove` refuses it. Also after the store was closed, and against other writers. Not collective: a rank that
        pins does so for itself. :class:`libdcp.Checkpoint` pins the step that it has open.

        Raises:
            libdcp.Error: NOT_FOUND, there is no such step; UNSUPPORTED, the file system has no locks.
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
        """Waits for the save in flight. Returns what nobody has heard of yet: a rank that raised it at once would leave
        the other ranks, whose programs have heard of it, alone in the next call."""
        self._check_open()
        saving, self._saving = self._saving, None
        if saving is None:
            return None
        try:
            saving.settle()
        except BaseException as e:
            return e
        finally:
            if saving.has_failed:
                self._laid_out = None
        return None

    def _after_earlier(self, step: int, how: str, save: Callable[[BaseException | None], T]) -> T:
        """Makes a save. Where the one in flight has failed, and some rank has not heard of it, the save is made first and
        that raised then, on all ranks: were it not made, two steps would be lost."""
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
        """Waits for a save in flight, and of a list for the stores that are being filled, and gives the store back.
        Every rank calls it."""
        try:
            with self._hold():
                self._close()
        finally:
            if not self._is_open:
                self._worker.close()  # whose thread may wait for the store

    def _close(self) -> None:
        if not self._is_open:
            return
        earlier = self._settle()
        self._working = threading.get_ident()
        try:
            self._shut()
        finally:
            self._working = 0
        if earlier:
            raise earlier

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
        directory: of the steps; ``directory/step-00000120`` is step 120.
        step: its number.
        state: a (nested) mapping to numpy arrays, torch tensors, DTensors and :class:`libdcp.Shard`. A top-level key
            whose value is a mapping is a section: ``{"model": {"a.b": t}}`` and ``{"model": {"a": {"b": t}}}`` are both
            ``/model/a.b`` in the file; tensors at the top level are in ``/model``. A section as torch's
            ``get_state_dict`` gives an optimizer's becomes ``/optimizer/exp_avg/<parameter>`` and so on. What is
            no tensor goes into the checkpoint's JSON with its type: numbers, texts, lists, tuples, sets, mappings by any
            keys, bytes, Enums, dataclasses and so on, see docs/format.md; nothing is ever pickled. What has
            ``state_dict()`` and ``load_state_dict()``, such as a module, at the top level or in mappings, stands for what
            they give and take.
            Ranks may have other keys, as those of pipeline stages do, or one that has a full state dict alone: the
            state is the union, and a tensor's holders are those that name it. So it is with what is no tensor, and an
            optimizer's groups are those of all ranks.
        group: see :class:`Store`.
        json: members of the checkpoint's JSON object.
        keep, replace: see :class:`Store`.
        layout: "global", one HDF5 file; or "sharded", a file a rank.
        replicas: what happens where ranks hold different bytes of the same elements, or different values that are no
            tensors, in the state or in ``json``, for the same keys: "warn" logs it, and the lowest rank's are saved;
            "check" fails; "trust" does not look.
        engine, shards, staging_bytes, make_room, about: as in ``dcp/save.h``.
        progress: called now and then with the bytes that are done and those of all; what it raises ends the save on
            all ranks.

    Raises:
        libdcp.Error: the same on all ranks; older steps are as they were.
        TypeError: an object that is no tensor and that JSON has no word for; it names the key.
    """
    with _signals.Shield(), Store(directory, group=group, keep=keep, replace=replace) as store:
        return store.save(step, state, json=json, **options)


def save_async(directory: Path, step: int, state: Mapping[Any, Any], *, group: Any = None,
               json: Mapping[str, Any] | None = None, keep: int = 0, replace: bool = False, copy: bool = True,
               copy_bytes: int | None = None, **options: Unpack[SaveKeywords]) -> Saving:
    """Begins a save as :func:`save` does it and returns; a thread of the library does the work.

    The step is the state as of the call: what this rank writes of it is copied before the call returns, whatever the
    arrays are. ``wait()`` of what is returned returns its report once the step is durable. For saves at many steps a
    :class:`Store` costs less, as it keeps the plan and the memory of copies.

    Args:
        copy: False: nothing is copied, and the call returns sooner; the state's memory must not change before the
            ``fence()`` of what is returned.
        copy_bytes: of each rank, to be spent for copies at most; None: half of what its host's ranks find available in
            equal parts, as the system, control groups and resource limits have it. Where more is to be copied, or no
            thread can do the work, the call writes: it returns once the rest is in the copy, or all is written.
        options: as :func:`save` has them, and the arguments before.
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
        path: a step's folder, or a directory of steps, meaning the newest one.
        state: as in :func:`save`; its tensors are written in place, what is no tensor is replaced in its mapping: lists
            and other containers as a whole, by new ones, and so are counters, defaultdicts and mappings that are empty.
            Objects get all that was stored of them, as torch.load would give it: tensors that their own state dicts lack at
            this time, or have of other shapes, are new arrays on the CPU, whole, also where they were saved in shards. So
            do lists and other containers. But a torch.nn.Module that loads as torch's own do refuses what it does not name,
            and other shapes. Of an Enum, a dataclass, a named tuple or another class of one's own
            the state has to have one, or :func:`libdcp.register` to have had it; else it is loaded as the plain value that
            it consists of, with a warning. A rank loads the keys that it names.
        group: see :class:`Store`.
        step: its number in that directory, in place of the newest one.
        fall_back: where the newest step of a directory is found damaged, take the newest that is not, as
            :meth:`Store.load` does.
        only: globs of paths, such as ``"/model/*"``: nothing else is loaded. What is no tensor has paths as well, such as
            ``"/scheduler/last_epoch"`` or, at the top level, ``"/epoch"``.
        rename: names in the state to those in the checkpoint; a ``*`` in both stands for the same text.
        cast: tensors of another dtype are converted; else they are an error.
        strict: tensors that only one side has, of what any rank names, are an error, and so is what is no tensor, nested
            members too, but for whole members of the checkpoint, such as ``"epoch"``, that the state does not name at its top
            level; else they are left as they are, and ``.missing`` and ``.unexpected`` of what is returned are the paths
            of those that one side lacks. With ``only`` what the checkpoint alone has is never an error, and
            ``.unexpected`` has what of it is selected. An optimizer's ``param_groups`` stay its own where the checkpoint, as dcp-train's,
            has nothing but tensors. Of torch's
            tensors that share their memory, as tied weights do, the checkpoint needs one. An optimizer's ``step``
            becomes the number of updates where a step that dcp-train saved has its moments.
        engine: as in ``dcp/save.h``.
        progress: called now and then with the bytes that have arrived and those of all.

    Returns:
        The checkpoint's JSON object, with "step": a dict.

    Raises:
        libdcp.Error: the same on all ranks: NOT_FOUND, MISMATCH, or CORRUPT, which names tensor and block.
    """
    with working(group) as comm:
        def check() -> tuple[str, int | None, bool, LoadKeywords]:
            place = _paths.given(path, "path", "libdcp.load(path, state)")
            given = _checked.checked("load", {"step": step, "fall_back": fall_back}, _checked.LOADS)
            return place, given["step"], given["fall_back"], _options.checked_load(options)
        place, number, falls_back, own = _agreed(comm, check)
        _agree_on_step(comm, number, falls_back)
        return _directory.load(comm, place, state, number, falls_back, own)
