"""Runs the tests of one of torch's files for torch_suite.py: prints one line of JSON for each test and number of ranks.

    python torch_suite_child.py FILE TESTS STORAGE

TESTS is a pattern. STORAGE is "torch" or "libdcp": with the latter, libdcp's Writer and Reader replace torch's
FileSystemWriter and FileSystemReader before the file is imported. Tests that are meant for GPUs run on the CPU."""

import functools
import importlib
import json
import os
import pathlib
import re
import signal
import sys
import unittest

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed import remote_device
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.overrides import TorchFunctionMode
from torch.testing._internal import common_distributed
from torch.testing._internal.distributed._shard import sharded_tensor

import libdcp.dcp

TEST_S = 60  # at most
RANKS = (2, 4)


class Writer(libdcp.dcp.Writer):
    """Replaces torch's writer; options for the format of its files have no meaning here."""

    def __init__(self, path, **_):
        super().__init__(path)

    def write_data(self, plan, planner):
        mark()
        return super().write_data(plan, planner)


class Reader(libdcp.dcp.Reader):
    def __init__(self, path, **_):
        super().__init__(path)

    def read_data(self, plan, planner):
        mark()
        return super().read_data(plan, planner)


class FsspecWriter(Writer):
    """Accepts paths alone, even in a test in which the other writer must refuse them."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return libdcp.dcp.Writer.validate_checkpoint_id(checkpoint_id)


class FsspecReader(Reader):
    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return libdcp.dcp.Reader.validate_checkpoint_id(checkpoint_id)


def mark():
    """Records that the test has used the storage."""
    with open(os.environ["SUITE_MARK"], "w"):
        pass


def marked(method):
    @functools.wraps(method)
    def call(*args, **kwargs):
        mark()
        return method(*args, **kwargs)
    return call


def replace_storage(storage):
    from torch.distributed.checkpoint import _fsspec_filesystem, _storage_utils, filesystem
    if storage == "torch":
        filesystem._FileSystemWriter.write_data = marked(filesystem._FileSystemWriter.write_data)
        filesystem.FileSystemReader.read_data = marked(filesystem.FileSystemReader.read_data)
        return
    for module in (dcp, _storage_utils, filesystem):
        module.FileSystemWriter, module.FileSystemReader = Writer, Reader
    _fsspec_filesystem.FsspecWriter, _fsspec_filesystem.FsspecReader = FsspecWriter, FsspecReader


class OnCpu(TorchFunctionMode):
    """Tensors that are meant for a GPU are made on, and moved to, the CPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if self.is_gpu(kwargs.get("device")):
            kwargs["device"] = "cpu"
        if function is torch.Tensor.to and len(args) > 1 and self.is_gpu(args[1]):
            args = (args[0], "cpu", *args[2:])
        return function(*args, **kwargs)

    def is_gpu(self, device):
        return type(device) is int or isinstance(device, torch.device) and device.type == "cuda" or (
            isinstance(device, str) and device.startswith(("cuda", "cpu:")))


def without_gpus():
    """Ranks are processes with gloo, forked, since importing torch takes longer than most tests."""
    def as_it_is(*_, **__):
        return lambda test: test
    common_distributed.at_least_x_gpu = lambda n: True
    common_distributed.skip_if_lt_x_gpu = common_distributed.requires_accelerator_dist_backend = as_it_is
    common_distributed.MultiProcessTestCase._spawn_processes = lambda self: self._start_processes(
        torch.multiprocessing.get_context("fork").Process)
    torch.multiprocessing.set_start_method("fork")
    common_distributed.TIMEOUT_DEFAULT = TEST_S
    with_comms = sharded_tensor.with_comms
    sharded_tensor.with_comms = lambda func=None, init_rpc=True, backend="gloo": with_comms(func, init_rpc, "gloo")
    init = torch.distributed.init_process_group
    torch.distributed.init_process_group = lambda backend=None, **rest: init(
        "gloo", **{name: value for name, value in rest.items() if name != "device_id"})
    fsdp = FullyShardedDataParallel
    fsdp.__init__ = functools.partialmethod(fsdp.__init__, device_id=torch.device("cpu"))
    torch.accelerator.current_accelerator = lambda check_available=False: None
    torch.accelerator.device_count = lambda: max(RANKS)
    torch.accelerator.set_device_index = lambda device: None
    torch.cuda.current_device = lambda: torch.device("cpu")
    place = remote_device._remote_device.__init__
    remote_device._remote_device.__init__ = lambda self, device: place(self, re.sub(r"/cpu:\d+$", "/cpu", str(device)))
    torch.nn.Module.cuda = lambda self, device=None: self
    torch.compile = functools.partial(torch.compile, backend="eager")
    OnCpu().__enter__()


class Result(unittest.TestResult):
    """Writes a line of JSON for each test."""

    def __init__(self, stream):
        super().__init__()
        self._lines = stream
        self.ranks = 1

    def startTest(self, test):
        super().startTest(test)
        self._said = {"result": "pass", "why": ""}
        pathlib.Path(os.environ["SUITE_MARK"]).unlink(missing_ok=True)
        signal.alarm(TEST_S + 20)  # after the time in which the test itself should have ended its ranks

    def stopTest(self, test):
        signal.alarm(0)
        super().stopTest(test)
        name = f"{type(test).__name__}.{test._testMethodName}"
        print(json.dumps({"test": name, "ranks": self.ranks, "used": os.path.exists(os.environ["SUITE_MARK"]),
                          **self._said}), file=self._lines, flush=True)

    def addError(self, test, err):
        self._said = {"result": "fail", "why": self._exc_info_to_string(err, test)}
    addFailure = addError

    def addSkip(self, test, reason):
        self._said = {"result": "skip", "why": reason}


def tests_in(suite):
    for test in suite:
        yield from tests_in(test) if isinstance(test, unittest.TestSuite) else [test]


def end_ranks(of_class):
    """Each test gets new ranks, since their number changes, and since torch skips the other tests on ranks of a
    failed one."""
    for process in of_class.processes:
        process.kill()
    of_class._processes_spawned = of_class.poison_pill = False


def late(*_):
    raise TimeoutError(f"no end after {TEST_S} s")


def child(file, wanted, storage):
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    without_gpus()
    replace_storage(storage)
    sys.path.insert(0, os.path.dirname(file))
    module = importlib.import_module(pathlib.Path(file).stem)
    signal.signal(signal.SIGALRM, late)
    result = Result(lines)
    for ranks in RANKS:
        for test in tests_in(unittest.defaultTestLoader.loadTestsFromModule(module)):
            keeps_ranks = isinstance(test, common_distributed.MultiProcContinuousTest)
            of_ranks = keeps_ranks or isinstance(test, common_distributed.MultiProcessTestCase)
            if re.search(wanted, test.id()) and (of_ranks or ranks == RANKS[0]):
                result.ranks = ranks if of_ranks else 1
                if of_ranks:
                    type(test).world_size = ranks
                test.run(result)
                if keeps_ranks and type(test)._processes_spawned:
                    end_ranks(type(test))


if __name__ == "__main__":
    child(*sys.argv[1:])
