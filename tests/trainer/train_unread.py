#!/usr/bin/env python3
"""A newest step that can't be read, as on a bad sector, is not a damaged one: the run ends with an error that says how to
continue from an older step, and continues so on request."""
import errno, os
from train_lib import cases, check, config, losses, make_text, messages, step_path, train


def unread(step):
    """Makes every access to the step's state fail from now on."""
    os.environ.update(LD_PRELOAD=os.environ["CRASH_REFUSE"], REFUSE_BELOW=os.path.realpath("ckpt"),
                      REFUSE_AT="0", REFUSE_ERRNO=str(errno.EIO), REFUSE_ALL=f"{step_path(step)[5:]}/state.h5")


def readable():
    del os.environ["LD_PRELOAD"]


@cases.shared
def trained():
    make_text()
    short = config("short.json", max_steps=4)
    train(1, short)
    reference = losses()
    return short, reference


def test_an_unreadable_step_ends_the_run():
    short, _ = cases.use(trained)
    unread(4)
    for args in (), ("--dry-run",):
        _, err = train(1, short, "max_steps=5", *args, expect=3)
        said = messages(err)[-1]
        check("step 4 could not be read, which proves no damage" in said and "state.h5" in said and
              "Input/output error" in said and "checkpoint.resume" in said, err)
        check("damaged" not in err.replace("proves no damage", ""), err)
        check(sorted(n for n in os.listdir("ckpt") if "step" in n) == [f"step-{i:08d}" for i in range(1, 5)],
              os.listdir("ckpt"))


def test_a_named_older_step_sets_the_unreadable_one_aside():
    short, reference = cases.use(trained)
    unread(4)
    _, err = train(1, short, f"checkpoint.resume={step_path(2)}", "max_steps=3")
    check("continuing from step 2" in err, err)
    check({"step-00000003", ".abandoned-step-00000003", ".abandoned-step-00000004"} <= set(os.listdir("ckpt")),
          os.listdir("ckpt"))
    readable()
    train(1, short)
    check(losses() == reference, "the run's losses differ")


def test_a_damaged_step_is_passed_over():
    short, _ = cases.use(trained)
    with open(f"{step_path(4)}/state.h5", "r+b") as f:
        middle = f.seek(0, os.SEEK_END) // 2
        f.seek(middle)
        byte = f.read(1)[0]
        f.seek(middle)
        f.write(bytes([byte ^ 1]))
    _, err = train(1, short)
    check("step 4 is damaged" in err and "continuing from step 3" in err, err)


cases.main()
