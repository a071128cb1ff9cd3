#!/usr/bin/env python3
"""A rank that SIGKILL does not end, because it waits for a file system that does not answer: dcp-run names it and what
it waits for, does not start again beside it, and ends with 3 after --grace, even if it was requested to stop; if the
rank ends earlier, dcp-run continues. What it has started ends before it does."""
import ctypes, os, re, shutil, signal, struct, subprocess, sys, tempfile, threading, time

BIN = os.environ["DCP_BIN"]
DEADLINE_S = 60
scratch = tempfile.mkdtemp(prefix="dcp_run.")
INIT, NO_REPLY = 26, (2, 36, 42)  # FUSE's requests: the first one, and those without an answer
libc = ctypes.CDLL(None, use_errno=True)
failures = []


class Silent:
    """A file system that stops answering once it is mounted."""

    def __init__(self, mount):
        self.mount = mount
        os.makedirs(mount)
        self.fd = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self.fd},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
        if libc.mount(b"silent", mount.encode(), b"fuse", 0, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), "cannot mount")
        self.asked = threading.Event()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                request = os.read(self.fd, 1 << 20)
            except OSError:  # unmounted
                return
            _, kind, unique = struct.unpack("<IIQ", request[:16])
            if kind == INIT:
                body = struct.pack("<IIIIHHIIHHI28x", 7, 31, 65536, 0, 12, 9, 65536, 1, 0, 0, 0)
                os.write(self.fd, struct.pack("<IiQ", 16 + len(body), 0, unique) + body)
            elif kind not in NO_REPLY:
                self.asked.set()

    def end(self):
        """Gives an error to all that wait, so that they can be ended."""
        if self.fd >= 0:
            libc.umount2(self.mount.encode(), 1)  # MNT_FORCE
            self.thread.join(DEADLINE_S)
            os.close(self.fd)
            libc.umount2(self.mount.encode(), 2)  # MNT_DETACH, if it was busy
            self.fd = -1


def check(condition, why):
    if not condition:
        failures.append(why)
        print("FAILED:", why)


def until(condition, what):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            check(False, f"waited in vain for {what}")
            return
        time.sleep(0.01)


def lives(pid):
    try:
        return not re.search(r"^State:\s*[ZX]", open(f"/proc/{pid}/status").read(), re.M)
    except OSError:
        return False


class Run:
    """The last rank leaves a process behind and waits for the file system; the others wait for a file."""

    def __init__(self, name, ranks, grace):
        self.dir = f"{scratch}/{name}"
        self.fs = Silent(f"{self.dir}/mount")
        rank = (f"cd {self.dir}; [ ! -e fail ] || exit 3; if [ $OMPI_COMM_WORLD_RANK = {ranks - 1} ]; then "
                "setsid sleep 1000 & echo $! >left; exec cat mount/file; fi; "
                "until [ -e fail ]; do sleep 0.02; done; exit 3")
        self.process = subprocess.Popen(
            [f"{BIN}/dcp-run", "-n", str(ranks), "--max-restarts", "1", "--grace", grace, "--",
             "sh", "-c", rank],
            stdin=subprocess.DEVNULL, stderr=open(f"{self.dir}/err", "w"))
        until(self.fs.asked.is_set, "a rank that is stuck")
        self.left = int(open(f"{self.dir}/left").read())

    def text(self):
        return open(f"{self.dir}/err").read()

    def says(self, what):
        until(lambda: re.search(what, self.text()), f"{what} in: {self.text()}")

    def fail(self):
        open(f"{self.dir}/fail", "w").close()

    def ends(self, goes_on):
        told = r"dcp-run: process \d+ \(cat\), state D, in \w+: SIGKILL does not end it"
        self.says(told)
        check(not lives(self.left), "what the stuck rank has started lives on")
        if goes_on:
            self.fs.end()
        try:
            status = self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = "none"
        text = self.text()
        check(status == 3, f"exit {status}: {text}")
        check(len(re.findall(told, text)) == 1, f"told more than once: {text}")
        check(("start 2, " in text) == goes_on, f"start 2: {text}")
        check(("processes of start 1 live on" in text) != goes_on, f"live on: {text}")
        self.fs.end()


try:
    Silent(f"{scratch}/mount").end()
except OSError as why:
    print("SKIPPED: no file system of ours can be mounted:", why)
    shutil.rmtree(scratch, True)
    sys.exit(77)
runs = []
try:
    runs += [Run("gives_up", 2, "0"), Run("goes_on", 2, "1000"), Run("stopped", 1, "0")]
    for run in runs[:2]:
        run.fail()
    runs[2].process.send_signal(signal.SIGTERM)
    runs[2].says("killing what is left of start 1")
    runs[2].process.send_signal(signal.SIGTERM)  # the mpirun, too
    for run, goes_on in zip(runs, (False, True, False)):
        run.ends(goes_on)
finally:
    for run in runs:
        run.process.kill()
        run.fs.end()
    shutil.rmtree(scratch, True)
sys.exit(1 if failures else 0)
