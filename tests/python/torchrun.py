"""Runs programs of this folder on several ranks of this host, as torchrun does: torchrun.py RANKS PROGRAM ARGUMENTS.

Ranks are forked from a process that has already imported what the program imports first. With torchrun itself, which
starts an interpreter for each rank, most of a test's time would be imports."""

import ast
import ctypes
import gc
import importlib
import os
import pathlib
import signal
import subprocess
import sys
import time
import types


def torchrun(ranks, program, *arguments, options=(), limit_s=300, folder=None, **environment):
    """Runs a program on the ranks, in a folder; under torchrun itself if there are options for it. Returns the result
    of subprocess.run, with the output."""
    words = ["-m", "torch.distributed.run", "--nproc-per-node"] if options else [__file__]
    return subprocess.run(
        [sys.executable, "-W", "ignore", *words, str(ranks), *options, program, *arguments],
        cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1", **environment}, timeout=limit_s, capture_output=True, text=True)


def import_first(tree):
    """Imports the modules of other projects that the program's first statements import."""
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom):
            names = [statement.module]
        elif isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        else:
            return
        for name in names:
            if name.split(".")[0] in ("accelerate", "megatron", "safetensors", "torch", "torchtitan", "transformers"):
                importlib.import_module(name)


def run_rank(rank, ranks, code, words, port):
    """In a child: becomes the program, when the port of the ranks' store can be read. Ends with its parent."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    os.environ.update({
        "RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0", "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": os.read(port, 8).decode(),
        "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0"})
    os.close(port)
    sys.argv[:] = words
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = words[0]
    exec(code, main.__dict__)


def end(children):
    """Ends the ranks after one has failed, as torchrun does: a moment later, and in the end by SIGKILL."""
    for wait_s, number in (0.2, signal.SIGTERM), (30, signal.SIGKILL):
        limit = time.monotonic() + wait_s
        while children and time.monotonic() < limit:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            children.discard(pid)
            time.sleep(0.01)
        for child in children:
            os.kill(child, number)
    while children:
        children.discard(os.wait()[0])


def wait_for(children):
    """Returns the status of the first child that failed, whose peers are then ended, or 0."""
    while children:
        pid, ended = os.wait()
        if pid in children and ended:
            status = os.waitstatus_to_exitcode(ended)
            print(f"torchrun: a rank ended with status {status}", file=sys.stderr, flush=True)
            end(children - {pid})
            return status
        children.discard(pid)
    return 0


def run(ranks, words):
    sys.path[0] = str(pathlib.Path(words[0]).resolve().parent)
    source = pathlib.Path(words[0]).read_text()
    tree = ast.parse(source, words[0])
    import torch.distributed as dist
    import_first(tree)
    code = compile(tree, words[0], "exec")
    gc.freeze()
    children, ports = set(), []
    for rank in range(ranks):
        to_read, to_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            for port in (to_write, *ports):
                os.close(port)
            run_rank(rank, ranks, code, words, to_read)
            return 0
        os.close(to_read)
        children.add(pid)
        ports.append(to_write)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for port in ports:
        os.write(port, str(store.port).encode())
        os.close(port)
    return 1 if wait_for(children) else 0


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), sys.argv[2:]))
