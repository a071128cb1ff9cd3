#!/usr/bin/env python3
"""How much of its device's memory a run takes is known before it takes any. A device that is too small is refused on all
ranks, with the plan's numbers and what is free, and saved steps stay. Nothing is allocated in a step (the stand-in ends
a program that does). --plan prints the same numbers without a device, for the configuration and for options that take
less."""
import os, re
import train_lib
from train_lib import cases, check, config, make_text, messages, state, tool, train

train_lib.TRAINER = os.environ["FENCED_TRAINER"]
MIB = 1 << 20


def run(path, ranks=2, expect=0, steps=1, offload=False, checkpointing=False, **env):
    config("config.json", device="cuda", fsdp={"cpu_offload": offload, "activation_checkpointing": checkpointing},
           max_steps=steps, train_batch_size=12, train_micro_batch_size_per_gpu=6, checkpoint={"dir": path})
    os.environ.update(env)
    _, err = train(ranks, "config.json", expect=expect)
    for name in env:
        del os.environ[name]
    return err


def compare_with_plan(err, ranks):
    planned = float(re.search(r"([0-9.]+) MiB of the device's memory per rank", err)[1])
    taken = [int(n) / MIB for n in re.findall(r"fenced: at most (\d+) bytes", err)]
    check(len(taken) == ranks and 0.97 * planned < max(taken) <= planned + 0.01,
          f"plans {planned} MiB and takes {taken}")
    return planned


def of_a_gpu(ranks, *args):
    """Returns MiB per rank by --plan, in each way, without the libraries' memory, since the stand-in has none."""
    out = tool(train_lib.TRAINER, "config.json", "--plan", "--ranks", ranks, *args).split("on a GPU of its own")[1]
    libraries, *mib = map(float, re.findall(r"^  \D+([0-9.]+)$", out.split("GPU of 8")[0].split("GPUs of 8")[0], re.M))
    return [n - libraries for n in mib]


def same(numbers, wanted, what):
    check(len(numbers) == len(wanted) and all(abs(a - b) < 0.02 for a, b in zip(numbers, wanted)),
          f"{what}: {numbers}, not {wanted}")


@cases.shared
def measured():
    make_text()
    least = compare_with_plan(run("offloaded", checkpointing=True, offload=True, FENCED_REPORT="1"), 2)
    same(of_a_gpu(2), [least], "all options")
    less = compare_with_plan(run("less", checkpointing=True, FENCED_REPORT="1"), 2)
    compare_with_plan(run("alone", ranks=1, offload=True, FENCED_REPORT="1"), 1)
    planned = compare_with_plan(run("ckpt", FENCED_REPORT="1"), 2)
    same(of_a_gpu(2), [planned, less, least], "options")
    same(of_a_gpu(2, "fsdp.shared_memory=false", "device=auto"), [planned, less, least], "without shared memory")
    return planned


def test_the_plan_has_the_numbers_of_the_runs():
    measured()


def test_a_device_that_is_too_small_is_refused():
    planned = cases.use(measured)
    before = state(1)

    room = int((planned - 0.2) * MIB)
    err = run("ckpt", expect=3, steps=2, FENCED_MEMORY=str(room))
    said = messages(err)[-1]
    check("out of memory: 2 ranks on the device fenced need " in said, said)
    needs, free = map(float, re.search(r"need ([0-9.]+) MiB, but ([0-9.]+) of", said).groups())
    check(abs(needs - 2 * planned) < 0.03 and abs(free - room / MIB) < 0.02, f"{planned} and {room}: {said}")
    for word in "parameters, gradients and moments", "gathered units", "activations", "partial sums", "cpu_offload":
        check(word in said, said)
    check(os.listdir("ckpt").count("step-00000001") == 1 and state(1) == before, "step 1 is not what it was")


def test_memory_of_libraries_counts():
    planned = cases.use(measured)
    # Kernels will load libraries later.
    err = run("ckpt", expect=3, steps=2, FENCED_MEMORY=str(int(2 * (planned + 0.2) * MIB)), FENCED_LATER=str(MIB))
    check("1.00 for what libraries take" in messages(err)[-1], messages(err)[-1])


def test_an_option_that_is_on_is_no_advice():
    cases.use(measured)
    said = messages(run("ckpt", expect=3, steps=2, offload=True, FENCED_MEMORY=str(MIB // 4)))[-1]
    check("fsdp.activation_checkpointing or more GPUs" in said and "cpu_offload" not in said, said)


def test_memory_that_is_not_in_one_piece_is_refused():
    planned = cases.use(measured)
    before = state(1)
    err = run("ckpt", expect=3, steps=2, FENCED_LARGEST=str(MIB // 4))
    said = messages(err)[-1]
    check("out of memory" in said and f"the run needs {planned:.2f}" in said and "still free" in said, said)
    check(state(1) == before, "step 1 is not what it was")


cases.main()
