"""Ranks that stay alive, for tests of many small calls: processes with a gloo group for each number of ranks.

    with Pool(4) as pool:
        answers = pool.call(2, function, [first rank's arguments, second rank's arguments])

Functions are sent by module and name. The answer is what they return, or the exception that they raise."""

import importlib
import multiprocessing
import os
import pathlib
import sys
import tempfile
import traceback

LIMIT_S = 120


def _serve(ranks, rank, directory, pipe):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    groups = {}
    dist.init_process_group("gloo", store=dist.FileStore(f"{directory}/store", ranks), rank=rank, world_size=ranks)
    for n in range(1, ranks + 1):
        groups[n] = dist.new_group(list(range(n)))
    while (work := pipe.recv()) is not None:
        n, module, name, arguments = work
        try:
            answer = getattr(importlib.import_module(module), name)(groups[n], *arguments)
        except Exception as e:
            e.add_note(traceback.format_exc()) if hasattr(e, "add_note") else None
            answer = e
        pipe.send(answer)
    os._exit(0)


class Pool:
    def __init__(self, ranks):
        self._scratch = tempfile.TemporaryDirectory(prefix="dcp-ranks-")
        context = multiprocessing.get_context("spawn")
        self._pipes, self._processes = [], []
        sys.path.insert(0, str(pathlib.Path(__file__).parent))
        for rank in range(ranks):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(ranks, rank, self._scratch.name, theirs), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def call(self, function, arguments):
        """Calls the function on as many ranks as there are argument lists. Returns the results, or the exceptions."""
        n = len(arguments)
        for pipe, given in zip(self._pipes, arguments):
            pipe.send((n, function.__module__, function.__name__, given))
        answers = []
        for rank, pipe in enumerate(self._pipes[:n]):
            if not pipe.poll(LIMIT_S):
                self.close()
                raise AssertionError(f"rank {rank} of {n} does not answer {function.__name__}{arguments[rank]}")
            answers.append(pipe.recv())
        return answers

    def results(self, function, arguments):
        """Does the same, but raises an exception of any rank."""
        answers = self.call(function, arguments)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def close(self):
        for process in self._processes:
            process.kill()
            process.join()
        self._scratch.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.close()
