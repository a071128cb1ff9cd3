"""The world of a soak: processes and files in its own namespaces, so everything foreign in it is something that
dcp-run has left over."""
import glob, os, signal, stat, time

LONGEST = 150  # seconds that any event may take; the machine may be busy


class Failure(Exception):
    pass


def check(condition, why):
    if not condition:
        raise Failure(why)


def wait_for(condition, what, limit=LONGEST):
    """Waits until the condition is true, and returns its value."""
    deadline = time.monotonic() + limit
    while not (found := condition()):
        check(time.monotonic() < deadline, f"waited {limit} s in vain for {what}")
        time.sleep(0.004)
    return found


class Process:
    """A process that was alive when it was examined."""

    def __init__(self, pid):
        self.pid = pid
        with open(f"/proc/{pid}/stat") as f:
            text = f.read()
        self.name = text[text.index("(") + 1:text.rindex(")")]
        fields = text[text.rindex(")") + 2:].split()
        self.state, self.parent = fields[0], int(fields[1])
        with open(f"/proc/{pid}/environ", "rb") as f:
            found = [v for v in f.read().split(b"\0") if v.startswith(b"OMPI_COMM_WORLD_RANK=")]
        self.rank = int(found[0].split(b"=")[1]) if found else None

    def __str__(self):
        return f"{self.name} (pid {self.pid}, state {self.state}, parent {self.parent})"


def processes():
    """Returns all processes that are alive, by pid; zombies are not."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            process = Process(int(pid))
        except OSError:  # the process has ended meanwhile
            continue
        if process.state not in "ZX":
            found[process.pid] = process
    return found


def below(root):
    """Returns the processes that descend from `root`."""
    every = processes()

    def descends(process):
        while process and process.pid != root:
            process = every.get(process.parent)
        return process is not None

    return [p for p in every.values() if p.pid != root and descends(p)]


def kill(process, number=signal.SIGKILL):
    """Returns true if the process existed and was signalled."""
    try:
        os.kill(process.pid if isinstance(process, Process) else process, number)
        return True
    except ProcessLookupError:
        return False


def strangers(ours=()):
    """Returns all processes that are alive except process 1, this one, and those with the given pids."""
    return [p for p in processes().values() if p.pid not in (1, os.getpid(), *ours)]


def kill_strangers():
    while left := strangers():
        for p in left:
            kill(p)
        time.sleep(0.01)
    while True:  # children of this process
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def check_nothing_left(folders):
    """Checks that there are no processes, no shared memory, and no files in folders that must be empty."""
    deadline = time.monotonic() + 10  # killed processes may still be ending
    while (left := strangers()) and time.monotonic() < deadline:
        time.sleep(0.01)
    check(not left, f"processes are left over: {', '.join(map(str, left))}")
    for kind in ("shm", "sem", "msg"):
        with open(f"/proc/sysvipc/{kind}") as f:
            check(len(f.readlines()) == 1, f"System V {kind} is left over")
    for folder in folders:
        left = [os.path.join(at, name) for at, names, files in os.walk(folder)
                for name in names + files]
        check(not left, f"left over: {' '.join(left[:20])}")


def check_folder(folder, allowed):
    """Checks that a checkpoint directory contains only steps and files that match the patterns."""
    wanted = {path for pattern in allowed for path in glob.glob(os.path.join(folder, pattern))}
    left = {os.path.join(folder, name) for name in os.listdir(folder)} - wanted
    check(not left, f"left over: {' '.join(sorted(left))}")
    sockets = [p for p in wanted if stat.S_ISSOCK(os.lstat(p).st_mode)]
    check(not sockets, f"sockets are left over: {' '.join(sockets)}")
