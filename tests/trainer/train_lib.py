"""What the tests of dcp-train share: a scratch folder, a small model, running and killing ranks; and `cases`, which runs
the functions test_* of a script (tests/support/cases.py)."""
import atexit, glob, json, math, os, random, shutil, signal, struct, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, f"{HERE}/../support")
import cases

SOURCE = os.environ.get("DCP_SOURCE") or os.path.abspath(f"{HERE}/../..")
BIN = os.environ.get("DCP_BIN") or f"{SOURCE}/build/bin"
TRAINER = f"{BIN}/dcp-train"
MPIRUN = os.environ.get("DCP_MPIRUN", "mpirun --oversubscribe").split()
TIMEOUT = 120  # seconds for one run: a hang is a failure

scratch = tempfile.mkdtemp(prefix="dcp_train.")
atexit.register(shutil.rmtree, scratch, True)
os.chdir(scratch)
# A killed mpirun leaves its files in these folders.
os.environ.update(OMPI_MCA_orte_tmpdir_base=scratch, OMPI_MCA_btl_vader_backing_directory=scratch)

# There are fewer micro-batches (7) and rows of the head norms (4) than 8 ranks, and no size divides another.
MODEL = {"model_type": "qwen3", "vocab_size": 259, "hidden_size": 64, "intermediate_size": 112,
         "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
         "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
         "tie_word_embeddings": True, "initializer_range": 0.02}


def fail(why):
    raise AssertionError(why)


def check(condition, why):
    if not condition:
        fail(why)


def make_text(name="text"):
    """Writes a text from which a model can learn something."""
    lines = [f"{i * i % 97} times {i % 13} is {i * i % 97 * (i % 13)};\n" for i in range(4000)]
    with open(name, "w") as f:
        f.writelines(lines)
    return name


def make_records(path, mask_of):
    """Writes 64 records of 4 to 33 bytes, with the masks mask_of(place in the record, length of the record)."""
    generator = random.Random(3)
    lengths = [generator.randint(4, 33) for _ in range(64)]
    ids = [generator.choice(b"abcdefgh") for _ in range(sum(lengths))]
    mask = [mask_of(i, n) for n in lengths for i in range(n)]
    starts = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    data = struct.pack(f"<{len(starts)}q{len(ids)}I{len(mask)}B", *starts, *ids, *mask)
    ends = [0, 8 * len(starts), 8 * len(starts) + 4 * len(ids), len(data)]
    header = {name: {"dtype": dtype, "shape": [n], "data_offsets": [ends[i], ends[i + 1]]}
              for i, (name, dtype, n) in enumerate([("starts", "I64", len(starts)), ("input_ids", "U32", len(ids)),
                                                    ("loss_mask", "U8", len(mask))])}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def config(name="config.json", **over):
    """Writes a configuration and returns its path. over: top-level keys; objects are merged into the defaults."""
    c = {"model": MODEL, "data": {"type": "text", "path": "text", "sequence_length": 128},
         "seed": 7, "max_steps": 12, "train_batch_size": 14, "train_micro_batch_size_per_gpu": 2,
         "optimizer": {"params": {"lr": 3e-3, "no_decay": ["*norm*"]}},
         "scheduler": {"type": "cosine", "params": {"warmup_steps": 3}},
         "checkpoint": {"dir": "ckpt", "every": 1, "keep": 0}, "metrics": "metrics.jsonl"}
    if "DCP_TEST_DEVICE" in os.environ:
        c["device"] = os.environ["DCP_TEST_DEVICE"]
    for key, value in over.items():
        merge = isinstance(value, dict) and key in c and key != "model"
        c[key] = {**c[key], **value} if merge else value
    with open(name, "w") as f:
        json.dump(c, f)
    return name


def command(ranks, *args):
    program = [TRAINER, *map(str, args)]
    return program if ranks == 1 else [*MPIRUN, "-n", str(ranks), *program]


class Run:
    """dcp-train in the background; its output goes to files, so it never waits for the test."""

    def __init__(self, ranks, *args):
        self.ranks = ranks
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        # Each run has its own folder, since processes of Open MPI may outlive a run for a moment.
        env = {**os.environ, "OMPI_MCA_orte_tmpdir_base": tempfile.mkdtemp(prefix="o", dir=scratch)}
        self.process = subprocess.Popen(command(ranks, *args), stdin=subprocess.DEVNULL,
                                        stdout=self.out, stderr=self.err, env=env)
        cases.at_end(lambda: self.process.poll() is None and self.end())  # if the test fails

    def text(self, file):
        file.seek(0)
        return file.read().decode(errors="replace")

    def pids(self):
        """Returns the ranks' processes; none until all have started."""
        if self.ranks == 1:
            return [self.process.pid]
        found = []
        for stat in glob.glob("/proc/[0-9]*/stat"):
            try:
                fields = open(stat).read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == self.process.pid:
                found.append(int(stat.split("/")[2]))
        return sorted(found) if len(found) == self.ranks else []

    def wait_for(self, condition, what):
        """Waits until the condition holds. Returns false if the run ends before."""
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            if self.process.poll() is not None:
                return condition()
            if time.monotonic() > deadline:
                self.end()
                fail(f"waited in vain for {what}: {self.text(self.err)}")
            time.sleep(0.001)
        return True

    def end(self):
        self.process.kill()
        self.process.wait()

    def wait(self):
        try:
            self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.end()
            fail(f"hangs: {self.text(self.err)}")
        return self.process.returncode


def wait_for_end(run, said):
    """Waits for a Popen and returns its exit status. said() returns its output, for the message if it hangs."""
    try:
        return run.wait(TIMEOUT)
    except subprocess.TimeoutExpired:
        run.kill()
        fail(f"hangs: {said()}")


def train(ranks, *args, expect=0):
    """Runs to the end; its exit status must be the expected one. Returns stdout and stderr."""
    run = Run(ranks, *args)
    status = run.wait()
    out, err = run.text(run.out), run.text(run.err)
    check(status == expect, f"{args} on {ranks} ranks: exit {status}, not {expect}: {out}\n{err}")
    return out, err


def train_killed(directory):
    """Two ranks train by config.json into `directory`, and are killed after step 3; one rank continues to the end, from
    step 4 at the latest."""
    run = Run(2, "config.json", "max_steps=100000")
    pids = []
    run.wait_for(lambda: pids or pids.extend(run.pids()), "its ranks")
    run.wait_for(lambda: os.path.isdir(step_path(3, directory)), "step 3")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    run.wait()
    for path in glob.glob(f"{directory}/step-*"):
        if int(path[-8:]) > 4:
            shutil.rmtree(path)
    train(1, "config.json")


def messages(err):
    """Returns the lines of dcp-train itself, without those of mpirun."""
    return [line for line in err.splitlines() if line.startswith("dcp-train: ")]


def metrics(path="metrics.jsonl"):
    return [json.loads(line) for line in open(path)]


def json_at(tree, path):
    """Returns the value at the keys `path`, which are separated by dots."""
    for key in path.split("."):
        tree = tree[key]
    return tree


def losses(path="metrics.jsonl"):
    """Returns step, loss and norm of each line as written, to the last digit."""
    return [line.split(", \"lr\"")[0] for line in open(path)]


def step_path(step, directory="ckpt"):
    return f"{directory}/step-{step:08d}"


def state(step, directory="ckpt"):
    with open(step_path(step, directory) + "/state.h5", "rb") as f:
        return f.read()


def steps(directory="ckpt"):
    return sorted(int(p[-8:]) for p in glob.glob(f"{directory}/step-*"))


def tool(*args, expect=0):
    """Runs a program of the build, or one with a path."""
    program = args[0] if "/" in args[0] else f"{BIN}/{args[0]}"
    done = subprocess.run([program, *map(str, args[1:])], capture_output=True, text=True,
                          timeout=TIMEOUT)
    check(done.returncode == expect,
          f"{args}: exit {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def sizes(path):
    """Returns the L2 norm of each parameter of a checkpoint."""
    out = path.replace("/", ".") + ".hf"
    tool("dcp-export", path, out)
    with open(f"{out}/model.safetensors", "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    header.pop("__metadata__", None)
    return {name: math.sqrt(sum(x * x for x in struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])))
            for name, (begin, end) in ((name, t["data_offsets"]) for name, t in header.items())}
