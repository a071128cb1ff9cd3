"""Faults of a soak: one function per fault, which returns a description of what it did, or None if there was no
process to do it to."""
import os, shutil, signal, subprocess, time
from run import ARMED, BIN, DISK, MEMORY, identity
from world import below, kill, processes, wait_for


def some(run, what):
    """Returns one of the ranks or processes, by rank or name, or None."""
    found = sorted(what, key=lambda p: (p.rank or 0, p.name))
    return found[run.random.randrange(len(found))] if found else None


def named(run, name):
    return [p for p in below(run.process.pid) if p.name == name]


def kill_rank(run):
    number = run.random.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT))
    rank = some(run, run.members())
    if rank and kill(rank, number):
        return f"{number.name} to rank {rank.rank}"


def kill_all_ranks(run):
    hit = [p for p in run.members() if kill(p)]
    if hit:
        return f"SIGKILL to all {len(hit)} ranks"


def kill_mpirun(run):
    hit = [p for p in named(run, "mpirun") if kill(p)]
    if hit:
        return "SIGKILL to mpirun"


def kill_agent(run):
    hit = [p for p in named(run, "job-guard") if kill(p)]
    if hit:
        return "SIGKILL to the process between dcp-run and mpirun"


def kill_supervisor(run):
    """Its ranks end within 5 seconds, or dcp-run is started again at once, once or twice. If the process between
    dcp-run and mpirun is killed as well, mpirun itself must notice."""
    how = run.random.choice(("waits", "at once", "twice", "with what guards the job"))
    left = [p.pid for p in below(run.process.pid)]
    guard = named(run, "job-guard") if how.startswith("with") else []
    if not kill(run.process.pid):
        return None
    for p in guard:
        kill(p)
    run.process.wait()
    if how.startswith("w"):
        wait_for(lambda: not any(pid in processes() for pid in left), "the job's end",
                 10 if guard else 5)
    run.start()
    if how == "twice":
        second_supervisor(run)
    return f"SIGKILL to dcp-run, started again: {how}"


def stop_rank(run):
    """Stops a rank for too short a time to count as a hang; some ranks get SIGKILL while they are stopped."""
    rank, seconds, killed = (some(run, run.members()), run.random.uniform(0.05, 1.5),
                             run.random.random() < 0.3)
    if not rank or not kill(rank, signal.SIGSTOP):
        return None
    time.sleep(seconds)
    kill(rank, signal.SIGKILL if killed else signal.SIGCONT)
    return f"SIGSTOP to rank {rank.rank}, after {seconds:.2f} s {'SIGKILL' if killed else 'SIGCONT'}"


def stop_other(run):
    name = run.random.choice(("dcp-run", "mpirun", "job-guard"))
    seconds = run.random.uniform(0.05, 1.5)
    hit = run.process.pid if name == "dcp-run" else some(run, named(run, name))
    if not hit or not kill(hit, signal.SIGSTOP):
        return None
    time.sleep(seconds)
    kill(hit, signal.SIGCONT)
    return f"SIGSTOP to {name} for {seconds:.2f} s"


def hang(run):
    """A rank stays stopped until dcp-run detects that there is no progress."""
    rank = some(run, run.members())
    if not rank or not kill(rank, signal.SIGSTOP):
        return None
    run.until(lambda: rank.pid not in processes(), "the end of a rank that hangs")
    return f"SIGSTOP to rank {rank.rank}, until it was ended"


def ask_to_end(run):
    """The run saves and ends, and is started again. If ranks die because of an earlier fault, it ends as a failed
    run: no rank is left to save, and a run that was requested to end is not restarted."""
    run.excuse("asked to end")
    how, before = run.random.choice((signal.SIGTERM, signal.SIGINT, signal.SIGUSR2, "stop")), run.starts
    if how == "stop" and not run.ctl("stop"):
        return None
    if how != "stop" and not kill(run.process.pid, how):
        return None
    run.until(lambda: run.starts > before, "the end")
    return f"{how if how == 'stop' else how.name} to dcp-run"


def ask_to_save(run):
    how = run.random.choice(("SIGUSR1", "save"))
    if how == "save":
        return run.ctl("save") and "ctl save"
    return "SIGUSR1 to dcp-run" if kill(run.process.pid, signal.SIGUSR1) else None


def resize(run):
    """The run continues on other ranks; half of the time another fault happens meanwhile."""
    ranks = run.random.choice((2, 3, 4, 5))
    if run.random.random() < 0.5:
        return run.ctl("resize", str(ranks)) and f"ctl resize {ranks}"
    asked = subprocess.Popen([f"{BIN}/dcp-run", "ctl", run.directory, "resize", str(ranks)],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    time.sleep(run.random.uniform(0, 1))
    meanwhile = run.random.choice((kill_rank, kill_mpirun, kill_agent, stop_rank, fail_a_call))(run)
    run.until(lambda: asked.poll() is not None, "an answer to a resize")
    return f"ctl resize {ranks}, meanwhile: {meanwhile}"


def fail_a_call(run):
    """An operation on a file of a checkpoint fails, or its caller is killed or stopped there."""
    what = run.random.choice(("EIO", "EIO", "ENOSPC", "short", "kill", "kill", "stop"))
    rank, after = run.random.randrange(2), run.random.randrange(30)
    if what in ("EIO", "ENOSPC"):
        run.excuse(what)
    with open(f"{ARMED}.new", "w") as f:
        f.write(f"{what} {rank} {after}")
    os.rename(f"{ARMED}.new", ARMED)
    deadline = time.monotonic() + 5
    while os.path.exists(ARMED):
        run.look()
        if time.monotonic() > deadline:  # the ranks do other work at the moment
            os.remove(ARMED)
            return None
        time.sleep(0.004)
    if what == "stop":
        time.sleep(run.random.uniform(0.05, 1))
        for p in run.members():
            if p.state == "T":
                kill(p, signal.SIGCONT)
    return f"{what} in a call of rank {rank}"


def fill_disk(run):
    """Fills the disk except for a small remainder, for a while."""
    leave, seconds = run.random.choice((0, 0, 4, 700, 1400)), run.random.uniform(0.2, 1.5)
    run.excuse("full disk")
    space = os.statvfs(DISK)
    with open(f"{DISK}/fill", "wb") as f:
        size = max(space.f_bavail * space.f_frsize - leave * 1024, 0)
        try:
            os.posix_fallocate(f.fileno(), 0, size) if size else None
        except OSError:  # another process has taken it meanwhile
            pass
    time.sleep(seconds)
    os.remove(f"{DISK}/fill")
    return f"the disk has {leave} KiB free for {seconds:.2f} s"


def flip(run, folder):
    """Flips a bit of one of the folder's files."""
    try:
        name = run.random.choice(sorted(n for n in os.listdir(folder) if n.endswith(".h5")))
        with open(f"{folder}/{name}", "r+b") as f:
            at = run.random.randrange(os.fstat(f.fileno()).st_size)
            f.seek(at)
            byte = f.read(1)
            f.seek(at)
            f.write(bytes([byte[0] ^ 1 << run.random.randrange(8)]))
            run.flipped.append(identity(f.fileno()))
    except (OSError, IndexError):  # the file has been removed
        return None
    return f"{os.path.basename(folder)}/{name}, byte {at}"


def flip_old(run):
    steps = run.intact()[:-1]
    done = steps and flip(run, run.random.choice(steps))
    return done and f"flipped: {done}"


def flip_newest(run):
    """All ranks die, and the newest step is damaged: the run continues from an older step."""
    if len(run.intact()) < 2 or not kill_all_ranks(run):
        return None
    steps = run.intact()
    done = len(steps) > 1 and flip(run, steps[-1])
    return f"all ranks killed, flipped: {done}"


def lose_memory(run):
    """All ranks die; the files that one of them had in memory are lost, or a byte of them flips."""
    if not run.memory:
        return None
    hit = [p for p in run.members() if kill(p)]
    if not hit:
        return None
    rank = run.random.randrange(len(hit))
    if run.random.random() < 0.5:
        shutil.rmtree(f"{MEMORY}/{rank}", ignore_errors=True)
        return f"all ranks killed, and the memory of rank {rank} is lost"
    folder = f"{MEMORY}/{rank}"
    try:
        steps = sorted(n for n in os.listdir(folder) if n.startswith("step-"))
    except FileNotFoundError:
        steps = []
    what = steps and flip(run, f"{folder}/{steps[-1]}")
    return f"all ranks killed, and flipped in the memory of rank {rank}: {what}"


def second_supervisor(run):
    """A second dcp-run must find that the run has one already, and do no harm."""
    run.rival = run.launch()
    run.until(lambda: not run.rival, "the end of one of two")
    return "a second dcp-run"


FAULTS = ((kill_rank, 6), (kill_all_ranks, 2), (kill_mpirun, 2), (kill_agent, 1),
          (kill_supervisor, 2), (stop_rank, 3), (stop_other, 2), (ask_to_end, 2), (ask_to_save, 1), (resize, 3), (hang, 1),
          (fail_a_call, 5), (fill_disk, 2), (flip_old, 2), (flip_newest, 1), (lose_memory, 2), (second_supervisor, 1))
