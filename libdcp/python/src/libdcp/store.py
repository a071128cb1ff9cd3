"""Saving and loading: stores of steps, and calls for one save or load."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from . import _calls, _capi, _options, _paths
from ._calls import Loaded
from ._comm import Comm
from ._directory import Directory, Pin, step_path, steps
from ._layout import Layout
from ._options import LoadKeywords, Report, SaveKeywords
from ._paths import Path
from ._state import State
from ._tiers import Tier, Tiers
from .errors import EarlierFailure, Error
from .saving import Flight, Saving

if TYPE_CHECKING:
    from typing_extensions import Unpack  # Python 3.10 has none of its own

log = logging.getLogger("libdcp")
T = TypeVar("T")

__all__ = ["Path", "Store", "Tier", "load", "save", "save_async", "step_path", "steps"]


def _agreed(comm: Comm, path: Path, what: str, order: str, step: int | None = None) -> str:
    """A path, of a step in it where one is given; what is wrong with it on one rank is raised there, and on the others that it was. Collective."""
    failure, text = None, ""
    try:
        text = _paths.given(path, what, order)
        text = text if step is None else step_path(text, step)
    except Exception as e:
        failure = e
    comm.agree(failure)
    return text


class Store:
    """A directory of steps, held for writing until it is closed, or a list of them. Collective; all of its methods are,
    too, but for those that say otherwise.

    Of a list, such as ``[Tier("/dev/shm/run", keep=2, private=True), Tier("/data/run", every=100)]``, an asynchronous
    save goes into the fastest store that is due; slower ones that are due are filled from its files in the background.
    That begins once the save has been waited for, or with the store's next call.
    :meth:`save` saves into all that are due and, whatever its ``every`` says, into the last one. A load takes the
    newest step of all that is whole, or can be made so from its redundancy.

    Args:
        directory: where the steps are; rank 0's counts. Or stores, fastest first: :class:`Tier`.
        group: a torch.distributed group, an mpi4py communicator, or None: torch's default group where that is
            initialized, else this process alone.
        keep: how many complete steps stay after a save; 0: all.
        replace: a save of a step that exists replaces it, and older steps than the newest can be saved.
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
        self._saving: Saving | None = None
        self._saving_step = 0
        self._laid_out: Layout | None = None  # of a declared state that the last save was an asynchronous one of
        self._is_open = False
        self._comm = Comm(group)
        self._backend: Directory | Tiers
        try:
            if not isinstance(directory, Sequence) or isinstance(directory, (str, bytes)):
                place = _agreed(self._comm, directory, "directory", "libdcp.save(directory, step, state)")
                self._backend = Directory(self._comm, place, keep, replace, take_over, stripe_count, stripe_bytes)
            elif keep or stripe_count or stripe_bytes:
                raise ValueError("of a list each store has its keep, stripe_count and stripe_bytes: see libdcp.Tier")
            else:
                self._backend = Tiers(self._comm, directory, replace, take_over)
        except BaseException:
            self._comm.close()
            raise
        self._is_open = True

    def declare(self, state: Mapping[Any, Any]) -> State:
        """Looks at a state's tensors once, for many saves of the same memory: pass what this returns in its place. Not
        collective. The arrays' places in memory, shapes and types must stay; their contents may change."""
        return State(state, self._comm.rank, self._comm.size)

    def save(self, step: int, state: Mapping[Any, Any] | State, *, json: Mapping[str, Any] | None = None,
             **options: Unpack[SaveKeywords]) -> Report:
        """Saves a step; see :func:`libdcp.save`. Where an asynchronous save before it has failed, and nobody was told, it
        raises that once this one is done: the message says that this step was saved."""
        def made(earlier: BaseException | None) -> Report:
            report = _capi.ReportStruct()
            with _calls.Prepared(self._comm, state, earlier=earlier) as prepared:
                made = prepared.save_options(json, options)
                prepared.unite(made.replicas)
                self._backend.save(prepared.step(step), prepared, made, report)
            return _options.report_of(report)
        self._laid_out = None
        return self._after_earlier(step, "was saved", made)

    def save_async(self, step: int, state: Mapping[Any, Any] | State, *, json: Mapping[str, Any] | None = None,
                   copy: bool = True, copy_bytes: int | None = None, **options: Unpack[SaveKeywords]) -> Saving:
        """Begins to save a step beside what the program does; see :func:`libdcp.save_async`.

        The memory of copies is kept from save to save. With ``copy=False``, from the second save of a declared state
        into a directory on, all but its JSON is a thread's work, and the call returns at once. The first save lays the
        files out, and makes groups for the threads.

        Where the save before it has failed, and nobody was told, it raises that once this one has begun, which goes on:
        :meth:`fence`, the next save and :meth:`close` mean it."""
        def made(earlier: BaseException | None) -> Saving:
            with _calls.Prepared(self._comm, state, earlier=earlier) as prepared:
                made = prepared.save_options(json, options)
                if copy:
                    prepared.copy_first(made, copy_bytes)
                return self._begun(state, prepared.step(step), prepared, made)
        return self._after_earlier(step, "is being saved", made)

    def _begun(self, state: Mapping[Any, Any] | State, step: int, prepared: _calls.Prepared,
               options: _capi.SaveOptions) -> Saving:
        def begin() -> Flight:
            prepared.unite(options.replicas)
            return self._backend.begin(step, prepared, options)
        layout = prepared.layout
        beside = (not options.copy_bytes and layout is not None and layout is self._laid_out
                  and prepared.failures.first is None)
        self._laid_out = None
        flight = None if beside else begin()
        self._saving = Saving(begin, flight, self._backend.ends_alone, *prepared.release(), prepared.failures)
        self._saving_step = step
        self._laid_out = layout if self._may_begin_beside() else None
        return self._saving

    def _may_begin_beside(self) -> bool:
        return self._comm.threads and self._backend.ends_alone

    def is_due(self, step: int) -> bool:
        """Whether a save of the step would go anywhere: of a directory always, of a list where one is due. Not
        collective, and the same on all ranks."""
        self._check_open()
        return self._backend.is_due(_paths.step_number(step))

    def load(self, state: Mapping[Any, Any] | State, *, step: int | None = None, fall_back: bool = True,
             **options: Unpack[LoadKeywords]) -> Loaded:
        """Loads a step, the newest one unless it is named, and goes on from it: later steps are set aside by the next
        save. See :func:`libdcp.load`.

        Args:
            fall_back: where the newest step is found damaged, by its checksums, take the newest that is not, with a
                warning; the damaged ones are later steps then. What could not be read is an error of its own, and no step
                that is named is replaced by another one. False: damage is an error."""
        number = self._number(step or 0)
        loaded = self._backend.load(state, None if step is None else number, fall_back, options)
        self._backend.continue_from(loaded["step"])
        return loaded

    def steps(self) -> list[int]:
        """The complete steps, ascending. Of a directory not collective."""
        self._check_open()
        return self._backend.steps()

    def newest(self) -> int | None:
        """The newest complete step, the same on all ranks; None: there is none."""
        self._check_open()
        if self._saving is not None:
            self._saving.await_begin()
        if isinstance(self._backend, Tiers):
            return max(self._backend.steps(), default=None)
        found = max(self.steps(), default=-1) if self._comm.rank == 0 else -1
        found = self._comm.first(found)
        return None if found < 0 else found

    def path(self, step: int) -> str:
        """The folder of a step, of a directory. Not collective."""
        return step_path(self._directory("path").path, step)

    def fence(self) -> None:
        """Returns once the memory of the last asynchronous save may change, which matters after one with
        ``copy=False``; at once where none is in flight."""
        if self._saving is not None:
            self._saving.fence()

    def continue_from(self, step: int) -> None:
        """Says that the run goes on from that step: later ones are set aside by the next save. :meth:`load` says it,
        too."""
        number = _paths.step_number(step)
        earlier = self._settle()
        self._backend.continue_from(number)
        if earlier:
            raise earlier

    def remove(self, step: int) -> None:
        """Removes a step, durably, of a directory."""
        number = self._number(step)
        self._directory("remove").remove(number)

    def pin(self, step: int) -> Pin:
        """Keeps a step of a directory, whatever ``keep`` says, until what this returns is released; meanwhile
        :meth:`remove` refuses it. Also after the store was closed, and against other writers. Not collective: a rank that
        pins does so for itself. :class:`libdcp.Checkpoint` pins the step that it has open.

        Raises:
            libdcp.Error: NOT_FOUND, there is no such step; UNSUPPORTED, the file system has no locks.
        """
        self._check_open()
        return Pin(self._directory("pin").path, step)

    def _number(self, step: Any) -> int:
        """A step's, for a call that waits for the save in flight; a failure of one rank is raised on all. Collective."""
        failure, number = self._settle(), 0
        try:
            number = _paths.step_number(step)
        except Exception as e:
            failure = failure or e
        self._comm.agree(failure)
        return number

    def _directory(self, what: str) -> Directory:
        if not isinstance(self._backend, Directory):
            raise ValueError(f"{what}: this store is a list of directories; open a store of the one that is meant")
        return self._backend

    def _check_open(self) -> None:
        if not self._is_open:
            raise ValueError("the store is closed")

    def _settle(self) -> Exception | None:
        """Waits for the save in flight. Returns what nobody has heard of yet: a rank that raised it at once would leave
        the other ranks, whose programs have heard of it, alone in the next call."""
        self._check_open()
        saving, self._saving = self._saving, None
        if saving is None:
            return None
        try:
            saving.settle()
        except Exception as e:
            return e
        finally:
            if saving.has_failed:
                self._laid_out = None
        return None

    def _after_earlier(self, step: int, how: str, save: Callable[[BaseException | None], T]) -> T:
        """Makes a save. Where the one in flight has failed, and some rank has not heard of it, the save is made first and
        that raised then, on all ranks: were it not made, two steps would be lost."""
        earlier = self._settle()
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
        raise told

    def close(self) -> None:
        """Waits for a save in flight, and of a list for the stores that are being filled, and gives the store back.
        Every rank calls it."""
        if not self._is_open:
            return
        earlier = None
        try:
            earlier = self._settle()
        finally:
            self._is_open = False
            self._backend.close()
            self._comm.close()
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
            ``get_state_dict`` gives an optimizer's becomes ``/optimizer/exp_avg/<parameter>`` and so on. Numbers, texts
            and lists of them go into the checkpoint's JSON, where {"float": "inf"} (or "-inf", "nan") stands for a
            number that JSON lacks; nothing is ever pickled. A top-level value that has
            ``state_dict()`` and ``load_state_dict()``, such as a module, stands for what they give and take.
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
    with Store(directory, group=group, keep=keep, replace=replace) as store:
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
    store = Store(directory, group=group, keep=keep, replace=replace)
    try:
        saving = store.save_async(step, state, json=json, copy=copy, copy_bytes=copy_bytes, **options)
    except BaseException:
        store.close()
        raise
    saving.add_done_callback(lambda _: _close_quietly(store))
    return saving


def _close_quietly(store: Store) -> None:
    """After the outcome was told."""
    store._saving = None
    store.close()


def load(path: Path, state: Mapping[Any, Any], *, group: Any = None, step: int | None = None,
         **options: Unpack[LoadKeywords]) -> Loaded:
    """Fills the memory of a state's tensors from a checkpoint, on any number of ranks. Collective.

    Args:
        path: a step's folder, or a directory of steps, meaning the newest one.
        state: as in :func:`save`; its tensors are written in place, what is no tensor is replaced in its mapping. A
            rank loads the keys that it names.
        group: see :class:`Store`.
        step: its number in that directory, in place of the newest one.
        only: globs of paths, such as ``"/model/*"``: nothing else is loaded.
        rename: names in the state to those in the checkpoint; a ``*`` in both stands for the same text.
        cast: tensors of another dtype are converted; else they are an error.
        strict: tensors that only one side has, of what any rank names, are an error, and so is a member of the state that
            is no tensor, such as ``"epoch"``, where the checkpoint has others and not this one; else they are left as they are, and
            ``.missing`` and ``.unexpected`` of what is returned are the paths of those that one side lacks. Of torch's
            tensors that share their memory, as tied weights do, the checkpoint needs one. An optimizer's ``step``
            becomes the number of updates where a step that dcp-train saved has its moments.
        engine: as in ``dcp/save.h``.
        progress: called now and then with the bytes that have arrived and those of all.

    Returns:
        The checkpoint's JSON object, with "step": a dict.

    Raises:
        libdcp.Error: the same on all ranks: NOT_FOUND, MISMATCH, or CORRUPT, which names tensor and block.
    """
    comm = Comm(group)
    try:
        place = _agreed(comm, path, "path", "libdcp.load(path, state)", step)
        return _calls.load_path(comm, place, state, options)
    finally:
        comm.close()
