"""torch.distributed.checkpoint on libdcp: a storage for its ``save``, ``async_save`` and ``load``.

    import libdcp.dcp
    dcp.save(state, storage_writer=libdcp.dcp.Writer("checkpoints", step=120))
    dcp.load(state, storage_reader=libdcp.dcp.Reader("checkpoints"))           # the newest step
    dcp.load(state, storage_reader=libdcp.dcp.Reader("checkpoints/step-120"))

This writes steps as :func:`libdcp.save` does. :func:`libdcp.load` can load them, and a :class:`Reader` can load steps
of :func:`libdcp.save`. For equal states, a :class:`Writer` and :func:`libdcp.save` write equal files, unless an object
is or contains an array, as a generator's state does: then the JSON of the :class:`Writer` also lists these arrays, in
its member "torch". Objects that are not tensors go into the checkpoint's JSON; nothing is pickled.

**Where a step lies.** A path whose last name is ``step`` and a number (``checkpoints/step-120``, ``step_120``,
``step=120``, ``step-00000120``) means that step of the folder before it; a save always names it ``step-00000120``. Any
other path, such as ``checkpoints/ema-step-120``, is a directory of steps, in which a save writes the step after the
newest one (the first is 0), and a load reads the newest one. A ``checkpoint_id`` is a path of the same form that replaces the adapter's own; one without a folder (``step-120``,
``120``) is a step in the adapter's directory.

**Planning.** With torch's own planner, neither plans nor metadata are gathered on one rank: each rank returns an empty
plan, and the library plans. Any other planner is called as torch would call it.

**Ranks** may save and load different keys, as with pipeline parallelism. If several ranks save an object, or a tensor
that is not distributed, under the same key but with different contents, ``replicas`` determines what happens; by
default, the lowest rank's contents are saved.

**What torch's planner omits.** A plan has no entry for an empty mapping in a list: the plan for ``[{}, 1]`` contains
only the 1. If such a plan is saved to torch's own storage, the load fails. After a save and a load with these adapters,
an empty mapping in a list has become None, or, at the list's end, is missing. :class:`libdcp.PerRank` works only with
:func:`libdcp.save` and :func:`libdcp.load`, and only :func:`libdcp.load` can load in place into numpy arrays.
"""

from ._dcp_reader import Reader
from ._dcp_writer import Writer

__all__ = ["Reader", "Writer"]
