"""Runs the programs of the crash tests, and makes the folders in which they work."""
import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from crash_cases import LOSERS, SCENES, Failed

WATCHDOG = 60  # seconds; a save needs less than one


class Programs:
    def __init__(self, build):
        bin_dir = os.path.join(build, "tests", "bin")
        self.state = os.environ.get("CRASH_STATE", os.path.join(bin_dir, "crash_state"))
        self.tiers = os.environ.get("CRASH_TIERS", os.path.join(bin_dir, "crash_tiers"))
        self.inject = os.environ.get("CRASH_INJECT", os.path.join(bin_dir, "crash_inject.so"))
        self.mpirun = os.environ.get("DCP_MPIRUN", "mpirun --oversubscribe").split()
        for program in (self.state, self.tiers, self.inject):
            if not os.path.exists(program):
                sys.exit(f"{program} is not there: build it, or name the build folder with --build")

    def ranks(self, n, arguments, env=None, program=None):
        """Runs crash_state, or another program, on n ranks; crash_state on one rank needs no launcher. Returns (exit
        status, output, errors). If all ranks have ended and only the launcher hangs, as mpirun sometimes does when all
        are killed, it is killed, too."""
        command = [program or self.state, *arguments]
        if n > 1:
            preload = ["-x", f"LD_PRELOAD={self.inject}"] if env else []
            command = [*self.mpirun, "-n", str(n), *preload, *command]
        child = subprocess.Popen(command, env={**os.environ, **(env or {})}, text=True,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, start_new_session=True)
        try:
            out, err = child.communicate(timeout=WATCHDOG)
        except subprocess.TimeoutExpired:
            left = [p for p in pids(env["INJECT_CONTROL"]) if is_running(p)] if env else []
            hangs = left or not env
            os.killpg(child.pid, signal.SIGKILL)
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            out, err = child.communicate()
            if hangs:
                raise Failed(f"hangs: {' '.join(arguments)}") from None
        return child.returncode, out, err


class Reader:
    """Has a step of the store open; its end reports whether the step still loads."""
    def __init__(self, programs, config, store):
        launcher = [*programs.mpirun, "-n", "2"] if config.is_private() else []
        self.child = subprocess.Popen([*launcher, config.program(programs), "hold", store,
                                       SCENES[config.scene].held, *config.state_words()],
                                      text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, start_new_session=True)
        if self.child.stdout.readline() != "held\n":
            raise Failed(f"the reader can't begin: {self.child.communicate()[1]}")

    def end(self):
        try:
            _, err = self.child.communicate(timeout=WATCHDOG)
        except subprocess.TimeoutExpired:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.communicate()
            raise Failed("the reader hangs") from None
        if self.child.returncode:
            raise Failed(f"the step that a reader has open is lost: {err}")


def linked_copy(source, target):
    """Copies steps by hard links: nothing may write into a published step. A reader's lock is on a file, whatever its
    names."""
    os.mkdir(target)
    for entry in os.scandir(source):
        copy = os.path.join(target, entry.name)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), copy)
        elif entry.is_dir():
            linked_copy(entry.path, copy)
        elif entry.name in (".lock", "about.json"):
            shutil.copy(entry.path, copy)
        else:
            os.link(entry.path, copy)


class Place:
    """Scratch folders on one file system, with a directory of steps for each scene."""
    def __init__(self, parent, programs):
        self.dir = os.path.realpath(tempfile.mkdtemp(prefix="dcp_matrix.", dir=parent))
        self.programs = programs
        self.slots = itertools.count()
        self.lock = threading.Lock()

    def before(self, config):
        """The store that the scene requires; made once."""
        words = config.state_words()
        made = os.path.join(self.dir, "-".join((config.scene, config.store, *words)))
        program = config.program(self.programs)
        ranks = LOSERS if config.scene == "lost" else 2
        with self.lock:
            for arguments in () if os.path.exists(made) else SCENES[config.scene].before:
                status, _, err = self.programs.ranks(ranks, ["save", made, *arguments, *words],
                                                     program=program)
                if status:
                    raise Failed(f"the saves before: {err}")
        return made

    def fresh(self, config):
        """Returns (a copy of it, a folder for what inject.c reports)."""
        slot = os.path.join(self.dir, f"slot.{next(self.slots)}")
        os.mkdir(slot)
        os.mkdir(os.path.join(slot, "control"))
        linked_copy(self.before(config), os.path.join(slot, "store"))
        return os.path.join(slot, "store"), os.path.join(slot, "control")


def set_environment(scratch=None):
    """Sets what mpirun requires, unless set already. scratch: for its files and ours; otherwise $TMPDIR."""
    settings = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "OMP_NUM_THREADS": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
                "OMPI_MCA_odls_base_sigkill_timeout": "0",  # the other ranks end at once
                "OMPI_MCA_mpi_yield_when_idle": "1",
                "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,vader",  # starts in half the time
                "HWLOC_COMPONENTS": "-linuxio,-pci"}  # and that in three quarters
    os.environ.update({k: v for k, v in settings.items() if k not in os.environ})
    if scratch:  # with a folder that mpirun makes and removes, and which two at once cannot share
        os.makedirs(os.path.join(scratch, f"ompi.{socket.gethostname().split('.')[0]}.{os.geteuid()}",
                                 "stays"), 0o700)
        os.environ |= {"TMPDIR": scratch, "OMPI_MCA_orte_tmpdir_base": scratch}


def pids(control):
    """The processes of the ranks that were started."""
    found = []
    for name in os.listdir(control):
        if name.startswith("pid."):
            with open(os.path.join(control, name), encoding="utf-8") as file:
                found.append(int(file.read()))
    return found


def wait_for_ranks(control):
    """Waits until the processes of the save have ended; they should have, or are about to."""
    end = time.monotonic() + WATCHDOG
    for pid in pids(control):
        while is_running(pid):
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
                raise Failed(f"process {pid} of the save is left running")
            time.sleep(0.005)


def is_running(pid):
    """Returns true if any thread is left: a process whose first thread has ended may still hold locks."""
    try:
        tasks = f"/proc/{pid}/task"
        return any(is_alive(f"{tasks}/{thread}") for thread in os.listdir(tasks))
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_alive(task):
    try:
        with open(f"{task}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
