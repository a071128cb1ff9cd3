"""torch.distributed.checkpoint on libdcp: a storage for its ``save``, ``async_save`` and ``load``.

    import libdcp.dcp
    dcp.save(state, storage_writer=libdcp.dcp.Writer("checkpoints", step=120))
    dcp.load(state, storage_reader=libdcp.dcp.Reader("checkpoints"))           # the newest step
    dcp.load(state, storage_reader=libdcp.dcp.Reader("checkpoints/step-120"))

This writes steps as :func:`libdcp.save` does, and each of the two reads what the other has saved. If arrays are, or are
inside, objects, as in a generator's state, the JSON lists them in "torch"; otherwise the files of equal states are
equal. Objects that are not tensors go into the checkpoint's JSON; nothing is pickled.

**Where a step lies.** A path that ends in ``step`` and a number (``checkpoints/step-120``, ``step_120``, ``step=120``,
``step-00000120``) is that step in the folder before it, written as ``checkpoints/step-00000120``. Any other path is a
directory of steps, in which a save writes the step after the newest one (the first is 0), and a load reads the newest.
A ``checkpoint_id`` is a path of the same form that replaces the adapter's own; one without a folder (``step-120``,
``120``) is a step in the adapter's directory.

**Planning.** With torch's own planner neither plans nor metadata are gathered on one rank: each rank returns an empty
plan, and the library plans. Planners that replace parts of torch's are called, as torch would call them.

**Ranks** may save and load different keys, as with pipeline parallelism. If several ranks save different contents for
an object, or for a tensor that is not distributed, under one key, the lowest rank's are saved, as ``replicas=`` says.

**What torch's planner omits.** In ``[{}, 1]`` it names only the 1, even for torch's own storage, whose load then fails.
After a save and a load with these adapters, an empty mapping in a list is None, or is missing at the list's end.
:class:`libdcp.PerRank` works only with :func:`libdcp.save` and :func:`libdcp.load`, and only the latter can load in
place into numpy arrays.
"""

from ._dcp_reader import Reader
from ._dcp_writer import Writer

__all__ = ["Reader", "Writer"]
