"""torch.distributed.checkpoint on libdcp: a storage for its ``save``, ``async_save`` and ``load``.

    import libdcp.dcp
    dcp.save(state, storage_writer=libdcp.dcp.Writer("checkpoints", step=120))
    dcp.load(state, storage_reader=libdcp.dcp.Reader("checkpoints"))           # the newest step
    dcp.load(state, storage_reader=libdcp.dcp.Reader("checkpoints/step-120"))

What is written is a step as :func:`libdcp.save` writes it, and each reads what the other has saved. Where arrays are or
lie within objects, as in a generator's state, the JSON says in "torch" which are; else the files of equal states are
equal. Objects that are no tensors go into the checkpoint's JSON; nothing is pickled.

**Where a step lies.** A path that ends in ``step`` and a number (``checkpoints/step-120``, ``step_120``, ``step=120``,
``step-00000120``) is that step in the folder before it, written as ``checkpoints/step-00000120``. Any other path is a
directory of steps, in which a save writes the step after the newest one (the first is 0), and a load takes the newest.
A ``checkpoint_id`` is such a path in place of the adapter's own; one without a folder (``step-120``, ``120``) is a step
in the adapter's.

**Planning.** With torch's own planner neither plans nor metadata are gathered on one rank: each rank hands out an empty
plan, and the library plans. Planners that replace parts of it are asked, as torch does it.

**Ranks** may save and load other keys, as with pipeline parallelism. Where several save an object or a tensor that is
not distributed under one key, and they differ, the lowest rank's is saved, as ``replicas=`` says.

**What torch's planner leaves out.** Of ``[{}, 1]`` it names the 1 alone, as it does for its own storage, whose load then
fails: an empty mapping within a list is None after a save and a load by these, or is missing at the list's end.
:class:`libdcp.PerRank` is of :func:`libdcp.save` and :func:`libdcp.load`, and so are numpy arrays that these load into.
"""

from ._dcp_reader import Reader
from ._dcp_writer import Writer

__all__ = ["Reader", "Writer"]
