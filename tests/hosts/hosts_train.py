"""Shared by tests that train on three hosts, or on HOSTS of them: train_lib.py's model, in the folder SHARED. Must
be imported before train_lib."""
import contextlib, os, re, signal, subprocess, sys
from hosts_lib import HERE, LOCAL, SHARED, cases, make, until

hosts = make(int(os.environ.get("HOSTS", "3")))
os.environ["TMPDIR"] = SHARED
sys.path.insert(0, f"{HERE}/../trainer")
from train_lib import BIN, SOURCE, TIMEOUT, TRAINER, check, fail

for name in ("OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_btl_vader_backing_directory"):
    del os.environ[name]  # each host has its own directory


def private(name, redundancy):
    """Returns a store in memory in front of checkpoint.dir, for which each host has its own directory."""
    return [{"path": f"{LOCAL}/{name}", "every": 1, "keep": 2, "redundancy": redundancy}]


def mpirun(ranks, *args, at=("h1", "h2", "h3")):
    """Runs dcp-train from h1 on hosts with equally many ranks. Returns stdout and stderr together."""
    slots = ",".join(f"{name}:{-(-ranks // len(at))}" for name in at)
    run = hosts.start("h1", ["mpirun", "--host", slots, "--map-by", "node", "-n", ranks, TRAINER, *args],
                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    text = run.communicate(timeout=TIMEOUT)[0]
    check(run.returncode == 0, f"exit {run.returncode}: {text}")
    return text


def host_file(*lines, path="hosts"):
    """Writes the file under another name and renames it, so no reader sees half of it."""
    with open(f"{path}.new", "w") as f:
        f.writelines(f"{line}\n" for line in lines)
    os.rename(f"{path}.new", path)
    return path


class Supervised:
    """dcp-run on a host, with dcp-train below it; its output goes to a file."""

    def __init__(self, name, options, *args, at="h1", program=f"{BIN}/dcp-run"):
        self.name = f"{name}.err"
        with open(self.name, "w") as err:
            self.process = hosts.start(at, [program, *options, "--", TRAINER, *args],
                                       stdout=err, stderr=err)
        cases.at_end(self.clear)

    def clear(self):
        """Ends all processes on the hosts, if a case that failed has left dcp-run running."""
        if self.process.poll() is None:
            self.process.kill()
            for pid in [pid for name in hosts.names for pid in hosts.pids(name)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def text(self):
        with open(self.name) as err:
            return err.read()

    def wait_for(self, condition, what):
        def holds():
            ended = self.process.poll() is not None
            return condition() or ended
        try:
            until(holds, what)
        except TimeoutError as error:
            fail(f"{error}: {self.text()}")
        check(condition(), f"ended before {what}: {self.text()}")

    def at_step(self, step, path):
        """Waits until the metrics show that the run has done this many steps."""
        self.wait_for(lambda: os.path.exists(path) and len(open(path).readlines()) >= step, f"step {step}")

    def ends(self, status=0):
        try:
            ended = self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            fail(f"hangs: {self.text()}")
        check(ended == status, f"exit {ended}, not {status}: {self.text()}")
        return self.text()


def ranks_at(name):
    """Returns the processes of dcp-train on a host."""
    return [pid for pid, program in hosts.pids(name).items() if program == "dcp-train"]


def proc(pid, name):
    """Returns the texts in a file of a process in /proc; the process may have ended."""
    try:
        with open(f"/proc/{pid}/{name}", errors="replace") as f:
            return f.read().split("\0")
    except OSError:
        return []


def until_without_secret(condition, said):
    """Waits until the condition holds. Checks meanwhile that no command line on any host contains a number of 16
    or more hexadecimal digits, such as a key or token, and that no rank has a number of dcp-run's. Returns the
    names of the programs that were seen."""
    programs = set()

    def holds():
        for pid in filter(str.isdigit, os.listdir("/proc")):
            words = proc(pid, "cmdline")
            programs.update(os.path.basename(word) for word in words[:3])
            line = " ".join(words).replace(BIN, "").replace(SOURCE, "")
            found = re.search(r"\b[0-9a-f]{16,}\b", line)
            check(not found, f"{found and found[0]} on a command line: {line}")
            if words and words[0].endswith("dcp-train"):
                keys = [value for value in proc(pid, "environ") if re.match("DCP_RUN_KEY=.", value)]
                check(not keys, f"a rank has {keys}")
        return condition()

    try:
        until(holds, "the ranks")
    except TimeoutError as error:
        fail(f"{error}: {said()}")
    return programs


def check_clear(names=hosts.names):
    """Checks that nothing is left of a run that has ended; the processes that served its commands end at once,
    too."""
    for name in names:
        try:
            until(lambda: not hosts.pids(name), "the end", 5)
        except TimeoutError:
            fail(f"left on {name}: {hosts.pids(name)}")


def restarts(text):
    """Returns what the lines about restarts report: where each one continued from, and the steps that it lost."""
    found = re.findall(r"^dcp-run: start \d+: (?:step (\d+) from (.*?)|from the beginning); "
                       r"(\d+) steps? to compute again", text, re.M)
    return [(int(step or 0), origin, int(lost)) for step, origin, lost in found]
