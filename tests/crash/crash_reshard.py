#!/usr/bin/env python3
"""dcp-reshard runs once for each of its calls that open or change something in DST: it is killed at that call, or the
call fails. If a step's name exists, the step is complete; a failure leaves no files, short writes make no difference,
and a step that was to be replaced is either the old or the new one."""
import atexit, filecmp, glob, os, shutil, signal, subprocess, sys, tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import cases

BIN, INJECT = os.environ["DCP_BIN"], os.environ["CRASH_INJECT"]
tmp = os.path.realpath(tempfile.mkdtemp(prefix="dcp_crash."))
atexit.register(shutil.rmtree, tmp, True)
os.chdir(tmp)
src, dst, control = f"{tmp}/src", f"{tmp}/dst", f"{tmp}/control"
sharded = ["--layout", "sharded", "--world", "2"]


def run(*command, env={}):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **env})


def fail(why, result):
    left = os.listdir(dst) if os.path.exists(dst) else "no folder"
    raise AssertionError(f"{why}: exit {result.returncode}\n{result.stdout}{result.stderr}{left}")


def reshard(to, *options, **env):
    return run(f"{BIN}/dcp-reshard", src, to, *(options or sharded), env=env)


def injected(fault, at, *options):
    """Runs dcp-reshard with a fault at call number `at`. Returns the result, and whether that call was reached."""
    shutil.rmtree(control, ignore_errors=True)
    os.mkdir(control)
    result = reshard(dst, *options, LD_PRELOAD=INJECT, OMPI_COMM_WORLD_RANK="0", INJECT_RANK="0", INJECT_BELOW=dst,
                     INJECT_CONTROL=control, INJECT_FAULT=fault, INJECT_AT=str(at),
                     INJECT_FROM=".tmp-step" if fault == "short" else "")
    return result, os.path.exists(f"{control}/fired")


def step_is(reference):
    """Returns true if DST's step has the same files as the step in `reference`."""
    names = [os.path.basename(p) for p in glob.glob(f"{reference}/step-*/*.h5")]
    found = [os.path.basename(p) for p in glob.glob(f"{dst}/step-*/*.h5")]
    folder = lambda d: glob.glob(f"{d}/step-*")[0]
    return sorted(names) == sorted(found) and all(
        filecmp.cmp(f"{folder(reference)}/{n}", f"{folder(dst)}/{n}", shallow=False) for n in names)


def check(fault, at, result):
    done, there = result.returncode == 0, bool(glob.glob(f"{dst}/step-*"))
    if there and not step_is(f"{tmp}/good"):
        fail(f"{fault} at call {at}: half a step", result)
    if fault == "kill" and result.returncode != -signal.SIGKILL or fault == "short" and not done:
        fail(f"{fault} at call {at}", result)
    if fault in ("EIO", "ENOSPC") and (result.returncode not in (0, 3) or done != there):
        fail(f"{fault} at call {at}: a step is there: {there}", result)
    if fault in ("EIO", "ENOSPC") and not done and not result.stderr:
        fail(f"{fault} at call {at}: no message", result)


def each_call(fault):
    at, fired = 0, True
    while fired:
        at += 1
        shutil.rmtree(dst, ignore_errors=True)
        os.mkdir(dst)
        result, fired = injected(fault, at)
        if fired:
            check(fault, at, result)
    if at < 10 or result.returncode:
        fail(f"{fault}: only {at} calls", result)
    return at - 1


def each_replacement():
    """dcp-reshard is killed while it replaces the step in DST, which has three shards."""
    at, fired = 0, True
    while fired:
        at += 1
        shutil.rmtree(dst, ignore_errors=True)
        shutil.copytree(f"{tmp}/old", dst)
        result, fired = injected("kill", at, *sharded, "--force")
        if not step_is(f"{tmp}/old") and not step_is(f"{tmp}/good"):
            fail(f"replacing, killed at call {at}: neither the old nor the new step", result)
        if fired and at % 8 == 0 and reshard(dst, *sharded, "--force").returncode:
            fail(f"replacing, killed at call {at}: the next one fails", result)
    return at - 1


@cases.shared
def made():
    """Makes the source, and its step in two shards ("good") and in three ("old")."""
    done = run(f"{BIN}/dcp-bench", "save", src, "--layers", "1", "--hidden", "128", "--vocab", "1100")
    if done.returncode:
        fail("dcp-bench", done)
    for to, world in (("good", "2"), ("old", "3")):
        result = reshard(f"{tmp}/{to}", "--layout", "sharded", "--world", world)
        if result.returncode:
            fail("without faults", result)


def test_killed_at_each_call():
    made()
    print("kill at each of", each_call("kill"), "calls")


def test_eio_at_each_call():
    made()
    print("EIO at each of", each_call("EIO"), "calls")


def test_enospc_at_each_call():
    made()
    print("ENOSPC at each of", each_call("ENOSPC"), "calls")


def test_short_at_each_write():
    made()
    print("short at each of", each_call("short"), "calls")


def test_killed_at_each_call_that_replaces_a_step():
    made()
    print("kill at each of", each_replacement(), "calls that replace a step")


cases.main()
