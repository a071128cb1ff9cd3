"""dcp-run's side of the board (trainer/ranks/board.h), for tests that play dcp-run for the ranks of dcp-train."""
import ctypes, mmap, os
from train_lib import check, Run

PHASES = ("started", "ready", "rebuilt", "loaded", "stepped")
RESIZE, STOP, REQUEUE = 1, 2, 3  # ranks_end_request
MAGIC, RANKS, TEXT = 0x64637262, 4096, 512


class Entry(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in
                ("progress", "step", "micro_batch", "published", "saves_done", "slowest_ns",
                 "handed_over")] + \
               [("phase", ctypes.c_uint32), ("told", ctypes.c_uint32), ("at_ns", ctypes.c_uint64 * 6)]


class Layout(ctypes.Structure):
    _fields_ = [("magic", ctypes.c_uint32), ("bytes", ctypes.c_uint32), ("saves_requested", ctypes.c_uint64),
                ("end_requested", ctypes.c_uint32), ("hosts_dropped", ctypes.c_uint32),
                ("resumed_is_set", ctypes.c_uint32), ("resumed", ctypes.c_char * TEXT), ("entries", Entry * RANKS)]


class BoardRun(Run):
    """Ranks with a board; args as Run's."""

    def __init__(self, ranks, *args, bytes=ctypes.sizeof(Layout)):
        self.fd = os.memfd_create("dcp-run")
        os.ftruncate(self.fd, ctypes.sizeof(Layout))
        self.board = Layout.from_buffer(mmap.mmap(self.fd, ctypes.sizeof(Layout)))
        self.board.magic, self.board.bytes = MAGIC, bytes
        os.environ["DCP_RUN_BOARD"] = f"/proc/{os.getpid()}/fd/{self.fd}"
        super().__init__(ranks, *args)
        del os.environ["DCP_RUN_BOARD"]

    def entries(self):
        return self.board.entries[:self.ranks]

    def all_reach(self, step):
        return all(e.step >= step for e in self.entries())

    def wait_for_step(self, step):
        check(self.wait_for(lambda: self.all_reach(step), f"step {step}"), f"ended before step {step}: {self.said()}")

    def said(self):
        return self.text(self.err)

    def end_with(self, status):
        """Waits for the end: every rank has told the exit status, which is this one."""
        found = self.wait()
        told = [e.told - 2 for e in self.entries()]
        check(found == status and told == [status] * self.ranks, f"exit {found}, told {told}, not {status}: {self.said()}")
        os.close(self.fd)
