"""One training run under dcp-run, which is started again whenever it ends too early."""
import glob, json, os, re, shutil, subprocess
from world import LONGEST, below, check, check_folder, check_nothing_left, wait_for

BIN = os.environ["DCP_BIN"]
SOURCE = os.environ["DCP_SOURCE"]
WORLD = os.environ["SOAK_FOLDER"]
DISK, MEMORY = f"{WORLD}/disk", "/dev/shm/memory"
EMPTY = [f"{WORLD}/tmp", f"{WORLD}/runtime"]  # these folders must be empty at the end
ARMED = f"{WORLD}/armed"  # for INJECT_ARMED
GRACE = 5  # dcp-run's --grace; a second dcp-run waits this long for the directory
STALL = 10  # seconds without progress after which dcp-run restarts the ranks
STEPS = 200

MODEL = {"model_type": "qwen3", "vocab_size": 259, "hidden_size": 64, "intermediate_size": 112,
         "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
         "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
         "tie_word_embeddings": True, "initializer_range": 0.02}


def prepare():
    """Makes the folders and the data of all runs, and temporary folders in which leftovers of programs are
    noticed."""
    for folder in (*EMPTY, DISK, MEMORY):
        os.mkdir(folder)
    os.environ.update(TMPDIR=EMPTY[0], OMPI_MCA_orte_tmpdir_base=EMPTY[0],
                      XDG_RUNTIME_DIR=EMPTY[1], OMPI_MCA_hwloc_base_binding_policy="none",
                      HWLOC_COMPONENTS="-linuxio,-pci", OMPI_MCA_mpi_yield_when_idle="1")
    # a little more space than the steps that exist simultaneously
    check(subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", DISK]).returncode == 0,
          "no tmpfs here")
    os.chdir(WORLD)
    with open("text", "w") as f:
        f.writelines(f"{i * i % 97} times {i % 13} is {i * i % 97 * (i % 13)};\n"
                     for i in range(4000))


def write_config(name, directory, metrics, **checkpoint):
    settings = {"model": MODEL, "data": {"type": "text", "path": "text", "sequence_length": 128},
                "seed": 7, "max_steps": STEPS, "train_batch_size": 14,
                "train_micro_batch_size_per_gpu": 2,
                "optimizer": {"params": {"lr": 3e-3, "no_decay": ["*norm*"]}},
                "scheduler": {"type": "cosine", "params": {"warmup_steps": 3}},
                "checkpoint": {"dir": directory, **checkpoint}, "metrics": metrics}
    with open(name, "w") as f:
        json.dump(settings, f)


def losses(path):
    """Returns step, loss and norm of each line as written, to the last digit."""
    return [line.split(', "lr"')[0] for line in open(path)]


class Reference:
    """The results of an undisturbed run of one rank without dcp-run."""

    def __init__(self):
        write_config("whole.json", "whole", "whole.jsonl", every=0)
        done = subprocess.run([f"{BIN}/dcp-train", "whole.json"], capture_output=True, text=True,
                              timeout=LONGEST)
        check(done.returncode == 0, f"the undisturbed run: {done.returncode}: {done.stderr}")
        with open(f"whole/step-{STEPS:08d}/state.h5", "rb") as f:
            self.state = f.read()
        self.losses = losses("whole.jsonl")


def identity(file):
    """Returns an identity of the file's current contents: a file that is written again has another one."""
    st = os.stat(file)
    return st.st_ino, st.st_mtime_ns


class Ended(Exception):
    """The run has done its steps."""


class Run:
    """`excused`: the reason why dcp-run may give up, since the last newer step. `rival`: a second dcp-run, if any;
    one of the two ends soon."""

    def __init__(self, number, random, memory):
        self.number, self.random, self.process = number, random, None
        self.directory, self.log = f"{DISK}/run", f"{WORLD}/run-{number}.err"
        self.ranks = random.choice((2, 3, 4))
        then = ",".join(str(random.choice((2, 3, 4))) for _ in range(20))
        self.policy = random.choice((["--restart-ranks", then], ["--on-failure", "same"],
                                     ["--on-failure", "same", "--logs", f"{WORLD}/logs"]))
        self.memory = memory  # whether there is a store in memory before checkpoint.dir
        self.starts = self.gave_up = 0
        self.excused, self.rival, self.highest, self.flipped = [], None, 0, []
        self.config = f"run-{number}.json"
        self.metrics = f"{WORLD}/run-{number}.jsonl"
        options = {"every": random.choice((1, 2)), "keep": random.choice((2, 3)),
                   "async": random.random() < 0.7}
        if self.memory:
            options["every"] = 5
            options["stores"] = [{"path": MEMORY + "/{rank}", "every": 1, "keep": 2,
                                  "redundancy": "partner", "domain": "{rank}"}]
        write_config(self.config, self.directory, self.metrics, **options)
        self.told = f"{self.ranks} ranks, {' '.join(self.policy)}, {json.dumps(options)}"

    def launch(self):
        """Starts a dcp-run for this run."""
        below = MEMORY if self.memory and self.random.random() < 0.5 else DISK
        environment = {**os.environ, "INJECT_BELOW": below, "INJECT_ARMED": ARMED,
                       "LD_PRELOAD": os.environ["CRASH_INJECT"]}
        command = [f"{BIN}/dcp-run", "-n", str(self.ranks), "--grace", str(GRACE),
                   "--max-restarts", "10", "--stall", str(STALL), *self.policy, "--",
                   f"{BIN}/dcp-train", self.config]
        with open(self.log, "a") as err:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                    stderr=err, env=environment)

    def ctl(self, *request):
        """Sends a request to dcp-run. Returns the answer, or None if there is none, for example because dcp-run
        has ended."""
        asked = subprocess.Popen([f"{BIN}/dcp-run", "ctl", self.directory, *request],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        self.until(lambda: asked.poll() is not None, f"an answer to {request}")
        out, err = asked.communicate()
        check(asked.returncode in (0, 2, 3), f"ctl {request}: {asked.returncode}: {err}")
        self.say(f"ctl {request}: {asked.returncode}: {out.strip()}{err.strip()}")
        return json.loads(out) if asked.returncode == 0 else None

    def start(self):
        self.starts += 1
        self.process = self.launch()

    def say(self, what):
        with open(self.log, "a") as f:
            f.write(f"soak: {what}\n")

    def newest(self):
        """Returns the newest step that is published in any store."""
        folders = [self.directory, *(f"{MEMORY}/{r}" for r in range(8))]
        found = [0]
        for folder in folders:
            try:
                found += [int(n[5:]) for n in os.listdir(folder) if re.fullmatch(r"step-\d{8}", n)]
            except FileNotFoundError:
                pass
        return max(found)

    def intact(self):
        """Returns the paths of those steps of checkpoint.dir of which no byte has been flipped."""
        found = []
        for path in sorted(glob.glob(f"{self.directory}/step-*")):
            try:
                if identity(f"{path}/state.h5") not in self.flipped:
                    found.append(path)
            except FileNotFoundError:  # the step has been removed meanwhile
                pass
        return found

    def members(self):
        """Returns the ranks that are alive."""
        return [p for p in below(self.process.pid) if p.rank is not None and p.name == "dcp-train"]

    def until(self, condition, what):
        """Waits for the condition; starts dcp-run again if it has ended for a valid reason. Raises Ended if all
        steps are done."""

        def holds():
            self.look()
            return condition()

        return wait_for(holds, what)

    def end_rivalry(self):
        """If one of the two has found that it is the second one, the other one is the run."""
        if self.rival.poll() is None and self.process.poll() in (2, 3):
            self.process, self.rival = self.rival, self.process
        status = self.rival.poll()
        if status is None:
            return
        done = os.path.exists(f"{self.directory}/step-{STEPS:08d}")
        check(status in (2, 3) or (status == 0 and done),
              f"a second dcp-run ended with status {status}")
        self.rival = None

    def look(self):
        if self.rival:
            self.end_rivalry()
        status = self.process.poll()
        if status is None:
            return
        if status == 0:
            raise Ended()
        check(status in (75, 143) or (status == 3 and self.excused),
              f"dcp-run ended with status {status}, excused: {self.excused}")
        self.gave_up += status == 3
        self.say(f"dcp-run ended with status {status} ({self.excused})")
        self.start()

    def go_on(self, steps=1):
        """Waits until there are newer steps than ever before."""
        goal = self.high() + steps
        self.until(lambda: self.newest() >= goal, f"step {goal}")
        if not os.path.exists(ARMED):
            self.excused = []

    def excuse(self, why):
        self.excused.append(why)

    def high(self):
        self.highest = max(self.newest(), self.highest)
        return self.highest

    def finish(self):
        try:
            self.until(lambda: False, "the end of the run")
        except Ended:
            if self.rival:
                check(self.rival.wait(LONGEST) in (0, 2, 3), "a second dcp-run failed")

    def check(self, reference):
        """After the end: checks that the results are the same and nothing is left over."""
        with open(f"{self.directory}/step-{STEPS:08d}/state.h5", "rb") as f:
            check(f.read() == reference.state, "the state differs")
        found = losses(self.metrics)
        different = [a for a, b in zip(found, reference.losses) if a != b]
        check(found == reference.losses, f"metrics differ: {len(found)} lines, {different[:3]}")
        for step in sorted(set(os.listdir(self.directory))):
            if not step.startswith("step-"):
                continue
            done = subprocess.run([f"{BIN}/dcp-inspect", "verify", f"{self.directory}/{step}"],
                                  capture_output=True, text=True, timeout=LONGEST)
            flipped = identity(f"{self.directory}/{step}/state.h5") in self.flipped
            check((done.returncode != 0) == flipped,
                  f"verify {step}, flipped: {flipped}: {done.returncode}: {done.stdout}{done.stderr}")
        check_folder(self.directory, ["step-*", "latest", ".lock", ".abandoned-step-*"])
        if os.path.exists(ARMED):
            os.remove(ARMED)
        if self.memory:
            ranks = json.loads(open(self.metrics).readlines()[-1])["ranks"]
            for rank in os.listdir(MEMORY):
                if int(rank) < ranks:  # files of ranks that did not exist at the end may stay
                    check_folder(f"{MEMORY}/{rank}",
                                 ["step-*", "latest", ".lock", ".abandoned-step-*"])
                shutil.rmtree(f"{MEMORY}/{rank}")
        check_nothing_left(EMPTY)
        left = set(os.listdir("/dev/shm")) - {"memory"}
        check(not left, f"left over in /dev/shm: {left}")
        shutil.rmtree(self.directory)
