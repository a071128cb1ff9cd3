#!/usr/bin/env python3
"""--plan prints units, memory and traffic without starting a rank. The textbook's case at a thousandth of its size: 8 MB
of parameters take 32 MB per rank with plain data parallelism, and 8 MB on four ranks if fully sharded."""
import os, re, subprocess
from train_lib import BIN, cases, check, config, MODEL, TIMEOUT, tool, train

MIB = 1 << 20


def plan(*args, ranks=1):
    """Returns all figures; name, parameters and gathers of each unit; and the output."""
    text = tool("dcp-train", "config.json", "--plan", "--ranks", ranks, *args)
    rows = {name: float(n) for name, n in re.findall(r"^  (\S.*?)  +([0-9.]+)$", text.split("\nsent")[0], re.M)}
    rows["params"] = int(text.split(" parameters")[0])
    rows["sent"] = float(re.findall(r"together +([0-9.]+)", text)[-1])
    units = re.findall(r"^ +\d+  (\S+) +(\d+) +[0-9.]+ +[0-9.]+ +[0-9.]+ +(\d+)$", text, re.M)
    return rows, [(name, int(n), int(times)) for name, n, times in units], text


def state(rows):
    return (rows["parameters"] + rows["gradients"] + rows["moments"]) * MIB


@cases.shared
def configured():
    # The data do not exist: they are not read.
    config(data={"path": "nowhere"}, model={**MODEL, "vocab_size": 512, "hidden_size": 256, "intermediate_size": 512,
                                            "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 32},
           train_batch_size=4, train_micro_batch_size_per_gpu=1)


def test_plain_data_parallelism():
    cases.use(configured)
    rows, units, _ = plan("zero_optimization.stage=0", ranks=4)
    P = rows["params"]
    check(abs(P / 2.1e6 - 1) < 0.1, f"{P} parameters")
    check(sum(n for _, n, _ in units) == P, "units do not add up")
    check([name for name, _, _ in units] == ["root", *(f"model.layers.{i}" for i in range(3))], units)
    check(all(times == 0 for _, _, times in units), "plain data parallelism gathers")
    check(16 * P <= state(rows) <= 1.01 * 16 * P, f"{state(rows)} bytes with plain data parallelism")


def test_fully_sharded():
    cases.use(configured)
    rows, units, text = plan(ranks=4)
    P = rows["params"]
    check(4 * P <= state(rows) <= 1.02 * 4 * P, f"{state(rows)} bytes on four ranks, fully sharded")
    check([times for _, _, times in units] == [1, 2, 2, 1], f"the last block is still there: {units}")
    check(rows["sent"] * MIB <= 1.02 * 3 * 4 * P * 3 / 4, f"{rows['sent']} MiB sent")
    parts = ("parameters", "gradients", "moments", "gathered units", "activations", "partial sums", "samples",
             "buffers of a save", "program")
    check(abs(sum(rows[part] for part in parts) - rows["together"]) < 0.05, "kinds do not add up")
    check("fits" in text and "does not fit" not in text, text)


def test_one_rank():
    cases.use(configured)
    alone, _, _ = plan()
    check(alone["sent"] == 0 and alone["partial sums"] > 0, "one rank sends nothing, and adds up four leaves")
    check(alone["gathered units"] > 0, "a second leaf's gradients stand beside the sum of the first")
    one, _, _ = plan("train_batch_size=1")
    check(one["gathered units"] == 0, "a rank's only leaf has no gradients but those of the state")
    less, _, _ = plan("fsdp.activation_checkpointing=true")
    check(less["activations"] < alone["activations"], "checkpointing of activations saves nothing")


def test_too_many_ranks_do_not_fit():
    cases.use(configured)
    many, _, text = plan(ranks=100000)
    check("does not fit" in text, "a hundred thousand ranks fit")
    check(not os.path.exists("ckpt") and not os.path.exists("metrics.jsonl"), "something is made")


def test_ranks_without_work_are_a_warning():
    cases.use(configured)
    _, err = train(1, "config.json", "--plan", "--ranks", "6")
    check("warning: 2 of 6 ranks have nothing to compute: train_batch_size 4 divided by" in err, err)
    _, err = train(1, "config.json", "--plan", "--ranks", "4")
    check(not err, err)


def fitting(*before):
    """Returns the plan's line about this machine, and the output. Limits that Slurm's --mem or a pod would set
    count."""
    big = ["model.vocab_size=500000", "zero_optimization.stage=0"]  # more than the program itself uses
    done = subprocess.run([*before, f"{BIN}/dcp-train", "config.json", *big, "--plan", "--ranks", "4"],
                          capture_output=True, text=True, timeout=TIMEOUT)
    check(done.returncode == 0, f"{before}: {done.stderr}")
    return re.search(r"^4 ranks on this machine: .*$", done.stdout, re.M)[0], done.stdout


def test_wrong_options_are_refused():
    cases.use(configured)
    _, err = train(1, "config.json", "--plan", "fsdp.replicas=3", "--ranks", "4", expect=2)
    check("replicas" in err, err)
    for args in (["--ranks", "4"], ["--plan", "--ranks", "0"], ["--plan", "--ranks", "x"], ["--plan", "max_step=1"]):
        train(1, "config.json", *args, expect=2)


def in_group(parent, limit_file, limit):
    """Returns the line of a process in a new control group within another new one, which has the limit; None if no
    group can be made."""
    outer = f"{parent}/dcp-plan-{os.getpid()}"
    inner = f"{outer}/inner"
    try:
        os.mkdir(outer)
    except OSError:
        return None
    try:
        if not os.path.exists(f"{outer}/{limit_file}"):  # this controller is not of this version
            return None
        with open(f"{outer}/{limit_file}", "w") as file:
            file.write(str(limit))
        os.mkdir(inner)
        return fitting("sh", "-c", f"echo $$ >{inner}/cgroup.procs; exec \"$@\"", "sh")[0]
    except OSError:
        return None
    finally:
        for group in (inner, outer):
            if os.path.isdir(group):
                os.rmdir(group)


def test_ulimits_count():
    cases.use(configured)
    whole, text = fitting()
    check(whole.endswith(": fits") and "ulimit -v" not in text, text)
    need = float(re.search(r"machine: ([0-9.]+) of", whole)[1])
    _, text = fitting("sh", "-c", f"ulimit -v {int(need * 1024 / 4 * 0.9)}; exec \"$@\"", "sh")
    check("MiB that a process may have (ulimit -v): does not fit" in text, text)
    _, text = fitting("sh", "-c", "ulimit -v 8000000; exec \"$@\"", "sh")
    check("ulimit -v" not in text, text)


def test_limits_of_a_control_group_count():
    cases.use(configured)
    need = float(re.search(r"machine: ([0-9.]+) of", fitting()[0])[1])
    tried = 0
    for parent, limit_file in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        for mib, ending in ((need * 0.9, "does not fit"), (need * 1.5, "fits")):
            line = in_group(parent, limit_file, int(mib) * MIB) if os.path.isdir(parent) else None
            if line:
                check(line.endswith(f" of {int(mib)}.0 MiB, the limit of the control group: {ending}"), line)
                tried += 1
    if not tried:
        cases.skip("no control group can be made here")


cases.main()
