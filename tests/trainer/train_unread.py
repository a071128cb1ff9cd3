#!/usr/bin/env python3
"""A newest step that can't be read, as on a bad sector, is no damaged one: the run ends with an
error that says how to go on from an older step, and goes on so when told to."""
import errno

from train_lib import *

make_text()
short = config("short.json", max_steps=4)
train(1, short)
reference = losses()


def unread(step):
    """Every look at the step's state fails from now on."""
    os.environ.update(LD_PRELOAD=os.environ["CRASH_REFUSE"], REFUSE_BELOW=os.path.realpath("ckpt"),
                      REFUSE_AT="0", REFUSE_ERRNO=str(errno.EIO), REFUSE_ALL=f"{step_path(step)[5:]}/state.h5")


def readable():
    del os.environ["LD_PRELOAD"]


unread(4)
for args in (), ("--dry-run",):
    _, err = train(1, short, "max_steps=5", *args, expect=3)
    said = messages(err)[-1]
    check("step 4 could not be read, which proves no damage" in said and "state.h5" in said and
          "Input/output error" in said and "checkpoint.resume" in said, err)
    check("damaged" not in err.replace("proves no damage", ""), err)
    check(sorted(n for n in os.listdir("ckpt") if "step" in n) == [f"step-{i:08d}" for i in range(1, 5)],
          os.listdir("ckpt"))

# An older step by its name: the later ones are set aside, the unread one too.
_, err = train(1, short, f"checkpoint.resume={step_path(2)}", "max_steps=3")
check("going on from step 2" in err, err)
check({"step-00000003", ".abandoned-step-00000003", ".abandoned-step-00000004"} <= set(os.listdir("ckpt")),
      os.listdir("ckpt"))
readable()
train(1, short)
check(losses() == reference, "the run's losses differ")

# A step that is damaged is passed over, as ever.
with open(f"{step_path(4)}/state.h5", "r+b") as f:
    middle = f.seek(0, os.SEEK_END) // 2
    f.seek(middle)
    byte = f.read(1)[0]
    f.seek(middle)
    f.write(bytes([byte ^ 1]))
_, err = train(1, short)
check("step 4 is damaged" in err and "going on from step 3" in err, err)
