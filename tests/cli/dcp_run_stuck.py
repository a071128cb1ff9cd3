#!/usr/bin/env python3
"""A rank that SIGKILL does not end, because it waits for a file system that does not answer: dcp-run
says which one and what it waits in, does not start again beside it, and ends with 3 after --grace;
once it is gone before that, dcp-run goes on."""
import ctypes, os, re, shutil, struct, subprocess, sys, tempfile, threading, time

BIN = os.environ["DCP_BIN"]
DEADLINE_S = 60
scratch = tempfile.mkdtemp(prefix="dcp_run.")
MOUNT = f"{scratch}/mount"
INIT, NO_REPLY = 26, (2, 36, 42)  # FUSE's requests: the first one, and those that take no answer
libc = ctypes.CDLL(None, use_errno=True)
failures = []


class Silent:
    """A file system that answers nothing once it is mounted."""

    def __init__(self):
        os.makedirs(MOUNT, exist_ok=True)
        self.fd = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self.fd},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
        if libc.mount(b"silent", MOUNT.encode(), b"fuse", 0, options.encode()) != 0:
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
        """Whoever waits gets an error, and can be ended."""
        if self.fd >= 0:
            libc.umount2(MOUNT.encode(), 1)  # MNT_FORCE
            self.thread.join(DEADLINE_S)
            os.close(self.fd)
            libc.umount2(MOUNT.encode(), 2)  # MNT_DETACH, where it was busy
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


def start(grace):
    """Two ranks: rank 1 waits for the file system, rank 0 fails as soon as it does."""
    ranks = (f"case $OMPI_COMM_WORLD_RANK in 1) exec cat {MOUNT}/file;; esac; "
             f"until [ -e {scratch}/fail ]; do sleep 0.02; done; exit 3")
    err = open(f"{scratch}/err", "w")
    return subprocess.Popen([f"{BIN}/dcp-run", "-n", "2", "--max-restarts", "1", "--grace", grace,
                             "--", "sh", "-c", ranks], stdin=subprocess.DEVNULL, stderr=err)


def text():
    return open(f"{scratch}/err").read()


def run(grace, mend):
    fs = Silent()
    try:
        process = start(grace)
        until(fs.asked.is_set, "a rank that is stuck")
        open(f"{scratch}/fail", "w").close()
        told = r"dcp-run: process \d+ \(cat\), state D, in \w+: SIGKILL does not end it"
        until(lambda: re.search(told, text()), f"the process that is told of: {text()}")
        if mend:
            fs.end()
        try:
            status = process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            status = "none"
        check(status == 3, f"exit {status}: {text()}")
        check(len(re.findall(told, text())) == 1, f"told more than once: {text()}")
        check(("start 2, " in text()) == mend, f"start 2: {text()}")
        check(("processes of start 1 live on" in text()) != mend, f"live on: {text()}")
    finally:
        fs.end()
        if os.path.exists(f"{scratch}/fail"):
            os.remove(f"{scratch}/fail")


try:
    Silent().end()
except OSError as why:
    print("SKIPPED: no file system of ours can be mounted:", why)
    shutil.rmtree(scratch, True)
    sys.exit(77)
try:
    run("0.5", False)
    run("1000", True)
finally:
    shutil.rmtree(scratch, True)
sys.exit(1 if failures else 0)
