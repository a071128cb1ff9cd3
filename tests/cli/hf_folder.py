"""Makes Hugging Face folders according to the descriptions of the formats alone, and runs the tools on them.
Importing this changes into a scratch folder."""
import atexit, json, os, random, shutil, struct, subprocess, sys, tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import cases

SOURCE = os.environ.get("DCP_SOURCE", os.path.realpath(os.path.dirname(os.path.abspath(__file__)) + "/../.."))
BIN = os.environ.get("DCP_BIN", SOURCE + "/build/bin")
MPIRUN = os.environ.get("DCP_MPIRUN", "mpirun --oversubscribe").split()
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "C64": 8, "I64": 8, "I32": 4, "U8": 1}
CONFIG = {"model_type": "sample", "hidden_size": 8, "rms_norm_eps": 1e-6, "dtype": "bfloat16",
          "id2label": {"0": "a", "1": "é"}, "tie_word_embeddings": False,
          "_name_or_path": "x/y", "transformers_version": "4.0.0"}

scratch = tempfile.mkdtemp(prefix="dcp_hf.")
atexit.register(shutil.rmtree, scratch, True)
os.chdir(scratch)


def check(condition, why):
    if not condition:
        raise AssertionError(why)


def run(*command, expect=0, ranks=0, limit=None, err=False):
    """Runs a program of the build. Returns its stdout, or its stderr if it is expected to fail or `err` is set.
    `limit`: bytes of address space."""
    command = [f"{BIN}/{command[0]}", *map(str, command[1:])]
    if ranks:
        command = [*MPIRUN, "-n", str(ranks), *command]
    if limit:
        command = ["prlimit", f"--as={limit}", *command]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120)
    check(done.returncode == expect,
          f"{command}: exit {done.returncode}, not {expect}: {done.stdout}{done.stderr}")
    return done.stderr if expect or err else done.stdout


def values(dtype, shape, seed=0):
    """Returns a tensor of random bytes: every value of the type may occur, including NaN and infinities."""
    n = SIZES[dtype]
    for size in shape:
        n *= size
    return dtype, list(shape), random.Random(f"{seed} {dtype} {shape}").randbytes(n)


def header(tensors):
    """Returns a header as safetensors' own writer orders and pads it, and the tensors' names in that order."""
    order = ["I64", "F64", "C64", "F32", "I32", "BF16", "F16", "F8_E8M0", "F8_E4M3", "F8_E5M2", "U8"]
    names = sorted(tensors, key=lambda name: (order.index(tensors[name][0]), name))
    entries, at = {"__metadata__": {"format": "pt"}}, 0
    for name in names:
        dtype, shape, data = tensors[name]
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    return text + b" " * (-len(text) % 8), names


def write(path, tensors):
    text, names = header(tensors)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(tensors[name][2] for name in names))


def folder(path, tensors, config=CONFIG, parts=1, **files):
    """Makes a folder of these tensors in `parts` files. `files`: the contents of other files by name, with `__` for a
    dot. Returns the path."""
    os.makedirs(path)
    if config is not None:
        json.dump(config, open(f"{path}/config.json", "w"))
    names = sorted(tensors)
    cut = [names[len(names) * i // parts:len(names) * (i + 1) // parts] for i in range(parts)]
    files_of = ["model.safetensors"] if parts == 1 else [
        f"model-{i + 1:05d}-of-{parts:05d}.safetensors" for i in range(parts)]
    for file, part in zip(files_of, cut):
        write(f"{path}/{file}", {name: tensors[name] for name in part})
    if parts > 1:
        index = {"metadata": {"total_size": sum(len(t[2]) for t in tensors.values())},
                 "weight_map": {name: file for file, part in zip(files_of, cut) for name in part}}
        json.dump(index, open(f"{path}/model.safetensors.index.json", "w"))
    for name, data in files.items():
        with open(f"{path}/{name.replace('__', '.')}", "wb") as f:
            f.write(data)
    return path


def content(path):
    with open(path, "rb") as f:
        return f.read()


def stored(path):
    """Returns {path: (dtype, bytes)} of all tensors of a state.h5, by its index."""
    import h5py
    data = content(path)
    with h5py.File(path) as f:
        return {row["path"].decode(): (row["dtype"].decode(),
                                       data[row["offset"]:row["offset"] + row["bytes"]])
                for row in f["dcp/index"][:]}


def datasets(path):
    """Returns {name: bytes} of an HDF5 file's contiguous datasets."""
    import h5py
    data, found = content(path), {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            at, n = item.id.get_offset() or 0, item.size * item.id.get_type().get_size()
            found[name] = data[at:at + n]
    with h5py.File(path) as f:
        f.visititems(visit)
    return found
