"""States made by numpy and saved by make_state, for the tests of dcp-inspect: save() and inspect(). Importing this
changes into a scratch folder."""
import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import cases

scratch = os.path.realpath(tempfile.mkdtemp(prefix="dcp_states."))
atexit.register(shutil.rmtree, scratch, True)
os.chdir(scratch)

NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32",
         "uint8": "U8", "bool": "BOOL", "uint16": "BF16",  # BF16 and F8_E8M0 are given as their bits
         "complex64": "C64", "complex128": "C128", "int8": "F8_E8M0"}


def save(directory, step, tensors, meta, layout="global"):
    """Saves {path: array}. layout: "global" or "sharded:N:DIMENSION". Returns the step's folder."""
    lines = []
    os.makedirs(directory, exist_ok=True)
    for i, (path, array) in enumerate(tensors.items()):
        array = np.asarray(array)
        file = os.path.join(directory, f".data-{i}")
        array.tofile(file)
        shape = ",".join(map(str, array.shape)) or "-"
        lines.append(f"{path} {NAMES[array.dtype.name]} {shape} {file}\n")
    subprocess.run([os.environ["MAKE_STATE"], directory, str(step), layout, json.dumps(meta)],
                   input="".join(lines), text=True, check=True)
    for i in range(len(tensors)):
        os.remove(os.path.join(directory, f".data-{i}"))
    return os.path.join(directory, f"step-{step:08d}")


def run(*args, status=0, ranks=0):
    """Runs dcp-inspect, by mpirun if ranks is not 0; it must exit with `status`. Returns its stdout; its stderr is in
    run.said."""
    command = os.environ["DCP_MPIRUN"].split() + ["-n", str(ranks)] if ranks else []
    done = subprocess.run(command + ["dcp-inspect", *args], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, errors="replace")
    assert done.returncode == status, (args, done.returncode, done.stdout[-2000:], done.stderr)
    assert status < 2 or (done.stderr and not done.stdout), (args, done.stdout, done.stderr)
    run.said = done.stderr
    return done.stdout


def inspect(*args, status=0, ranks=0):
    """Runs dcp-inspect with --json. Returns what it prints."""
    return json.loads(run(*args, "--json", status=status, ranks=ranks))


def flip(path, at):
    """Flips a bit of the byte at `at`."""
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 16]))
