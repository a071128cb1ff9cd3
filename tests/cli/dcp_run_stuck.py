#!/usr/bin/env python3
"""SIGKILL does not end a rank, because it waits for a file system that does not answer: dcp-run reports which rank
it is and what it waits for, starts no ranks beside it, and ends with status 3 after --grace, also if it was
requested to stop. If the rank ends before that, dcp-run continues. dcp-run ends only after the processes that
it started."""
import atexit, ctypes, os, re, signal, struct, subprocess, threading, time
from hf_folder import BIN, cases, check, scratch

DEADLINE_S = 60
INIT, NO_REPLY = 26, (2, 36, 42)  # FUSE's requests: the first one, and those without an answer
libc = ctypes.CDLL(None, use_errno=True)


class Silent:
    """A file system that answers no request once it is mounted."""

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
            except OSError:  # it is unmounted
                return
            _, kind, unique = struct.unpack("<IIQ", request[:16])
            if kind == INIT:
                body = struct.pack("<IIIIHHIIHHI28x", 7, 31, 65536, 0, 12, 9, 65536, 1, 0, 0, 0)
                os.write(self.fd, struct.pack("<IiQ", 16 + len(body), 0, unique) + body)
            elif kind not in NO_REPLY:
                self.asked.set()

    def end(self):
        """Waiting processes get an error, and can end."""
        if self.fd >= 0:
            libc.umount2(self.mount.encode(), 1)  # MNT_FORCE
            self.thread.join(DEADLINE_S)
            os.close(self.fd)
            libc.umount2(self.mount.encode(), 2)  # MNT_DETACH, if it was busy
            self.fd = -1


def until(condition, what):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        check(time.monotonic() <= deadline, f"waited in vain for {what}")
        time.sleep(0.01)


def lives(pid):
    try:
        return not re.search(r"^State:\s*[ZX]", open(f"/proc/{pid}/status").read(), re.M)
    except OSError:
        return False


class Run:
    """A dcp-run whose last rank starts a process in a session of its own and then waits for the file system; other
    ranks wait for a file."""

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
        atexit.register(self.end)
        until(self.fs.asked.is_set, "a rank that is stuck")
        self.left = int(open(f"{self.dir}/left").read())

    def text(self):
        return open(f"{self.dir}/err").read()

    def says(self, what):
        until(lambda: re.search(what, self.text()), f"{what} in: {self.text()}")

    def fail(self):
        open(f"{self.dir}/fail", "w").close()

    def end(self):
        self.process.kill()
        self.fs.end()

    def check_end(self, goes_on):
        """dcp-run reports the stuck process once and exits with 3; it starts again if that process can be ended."""
        told = r"dcp-run: process \d+ \(cat\), state D, in \w+: SIGKILL does not end it"
        self.says(told)
        check(not lives(self.left), "what the stuck rank has started lives on")
        if goes_on:
            self.fs.end()
        try:
            status = self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            status = "none"
        text = self.text()
        check(status == 3, f"exit {status}: {text}")
        check(len(re.findall(told, text)) == 1, f"told more than once: {text}")
        check(("start 2, " in text) == goes_on, f"start 2: {text}")
        check(("processes of start 1 are still alive" in text) != goes_on, f"are still alive: {text}")


def mount_probe():
    try:
        Silent(f"{scratch}/mount").end()
    except OSError as why:
        cases.skip(f"no file system of ours can be mounted: {why}")


@cases.shared
def started():
    """Three runs with a stuck rank. They wait simultaneously, since each takes seconds to give up."""
    mount_probe()
    runs = {"gives_up": Run("gives_up", 2, "0"), "goes_on": Run("goes_on", 2, "1000"), "stopped": Run("stopped", 1, "0")}
    runs["gives_up"].fail()
    runs["goes_on"].fail()
    runs["stopped"].process.send_signal(signal.SIGTERM)
    runs["stopped"].says("killing what is left of start 1")
    runs["stopped"].process.send_signal(signal.SIGTERM)  # including mpirun
    return runs


def test_gives_up_if_the_grace_time_is_over():
    started()["gives_up"].check_end(goes_on=False)


def test_goes_on_if_the_process_ends_before():
    started()["goes_on"].check_end(goes_on=True)


def test_gives_up_if_asked_to_stop():
    started()["stopped"].check_end(goes_on=False)


cases.main()
