#!/usr/bin/env python3
"""dcp-export --force replaces only what it has recognized as an export. If one call on OUT fails, whichever it is, what
a user has put there stays."""
import errno, itertools, os, subprocess
from hf_folder import BIN, cases, check, run


def refused(out, at, *options):
    """Runs dcp-export --force with a failure of the call number `at` on OUT. Returns its exit status, its stderr, and the
    number of calls."""
    env = {**os.environ, "LD_PRELOAD": os.environ["CRASH_REFUSE"], "REFUSE_BELOW": os.path.realpath(out),
           "REFUSE_AT": str(at), "REFUSE_ERRNO": str(errno.EIO), "REFUSE_COUNT": os.path.abspath("count")}
    done = subprocess.run([f"{BIN}/dcp-export", "c", os.path.realpath(out), "--force", *options], env=env,
                          capture_output=True, text=True, timeout=120, check=False)
    with open("count", encoding="utf-8") as f:
        return done.returncode, done.stderr, int(f.read().split()[0])


def check_stays(out, mine, *options):
    """Makes each call on OUT fail in turn. `mine` is OUT, or an entry of it."""
    inode = os.stat(mine).st_ino
    for at in itertools.count(1):
        status, err, calls = refused(out, at, *options)
        check(os.path.exists(mine) and os.stat(mine).st_ino == inode, f"{mine} is lost after call {at} had failed: {err}")
        check(status in (2, 3) and err, f"call {at}: exit {status}: {err}")
        if at > calls:
            check(calls > 1, f"only {calls} calls on {out}")
            return


@cases.shared
def saved():
    subprocess.run([os.environ["MAKE_CHECKPOINT"], "c", "3"], check=True)


def test_a_folder_with_other_files_stays():
    cases.use(saved)
    run("dcp-export", "c", "out")
    os.mkdir("out/mine")
    check_stays("out", "out/mine")


def test_a_file_that_is_no_export_stays():
    cases.use(saved)
    with open("mine.h5", "w", encoding="utf-8") as f:
        f.write("mine")
    check_stays("mine.h5", "mine.h5", "--format", "hdf5")


cases.main()
