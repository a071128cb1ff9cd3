#!/usr/bin/env python3
"""--plan of both published sizes of talkers, whole and with the code predictor frozen, on 1, 4 and 8 ranks: the number of
parameters, with and without the predictor; a rank's memory by kind, which adds up, for the given number of frames; and
the GPUs that fit, which follow from the memory and are those of examples/talker/README.md."""
import json, re, sys
from train_lib import BIN, cases, check, config, SOURCE, tool

sys.path.append(f"{SOURCE}/tests/data")
from talker_sizes import PUBLISHED

KINDS = ("parameters", "gradients", "moments", "offloaded, at work", "gathered units", "activations", "partial sums",
         "samples", "buffers of a save", "program")
TEXT = ["talker.model.text_embedding.*", "talker.text_projection.*"]
PREDICTOR = ["talker.code_predictor.*"]
FROZEN = {"nothing": [], "predictor": PREDICTOR, "text": TEXT, "text, predictor": TEXT + PREDICTOR}
SIZES = 8, 16, 24, 40, 80
WAYS = ("as configured", "with activation checkpointing", "with activation checkpointing and cpu_offload")


def plan(ranks, *args, frames=320, **over):
    """Returns the output of --plan, and its figures of memory by name, in MiB."""
    config(model="model.json", data={"type": "speech", "path": "none", "sequence_length": 512, "frames": frames},
           bf16={"enabled": True}, train_batch_size=32, **over)
    out = tool(f"{BIN}/dcp-train", "--plan", "--ranks", ranks, "config.json", *args)
    return out, {name: float(n) for name, n in re.findall(r"^  (\S.*?)  +([0-9.]+)$", out.split("\nsent")[0], re.M)}


def check_fits(out, mib, ranks):
    """Checks that the plan names the first of the ways for which each GPU has enough memory."""
    for gb in SIZES:
        way = next((w for w in WAYS if w in mib and mib[w] * 2**20 <= gb * 10**9), None)
        wanted = "does not fit" if not way else "fits" if way == WAYS[0] else f"fits {way}"
        gpus = "1 GPU" if ranks == 1 else f"{ranks} GPUs"
        check(f"\n{gpus} of {gb} GB: {wanted}\n" in out, f"{gb} GB: not '{wanted}': {out}")


def check_size(total, without, ranks, frozen):
    out, mib = plan(ranks, frozen=frozen)
    trained = without if frozen else total
    check(f"{total} parameters, {trained} of them trained, in 34 units on {ranks} " in out, out)
    check(f"\n{without} parameters without the code predictor\n" in out, out)
    check(abs(sum(mib[kind] for kind in KINDS) - mib["together"]) < 0.06, f"kinds do not add up: {mib}")
    for kind, of, bytes_each in ("parameters", total, 4), ("gradients", trained, 4), ("moments", trained, 8):
        each = of * bytes_each / ranks / 2**20
        check(each - 0.01 < mib[kind] < 1.01 * each + 0.1, f"{mib[kind]} MiB of {kind}, not {each}")
    check_fits(out, mib, ranks)
    return mib


def row(size, frozen):
    """Returns the row of examples/talker/README.md: the smallest GPUs that fit, in each way."""
    cells = []
    for ranks in 1, 4, 8:
        _, mib = plan(ranks, frozen=FROZEN[frozen])
        cells.append(", ".join(str(next(gb for gb in SIZES if mib[way] * 2**20 <= gb * 10**9)) for way in WAYS))
    return "| " + " | ".join([size, frozen, *cells]) + " |"


with open(f"{SOURCE}/examples/talker/README.md") as f:
    readme = f.read()


def test_plans_of_published_sizes():
    for (size, (model, total, without)), root in zip(PUBLISHED.items(), (429466624, 386469888)):
        with cases.part(f"{size}"):
            with open("model.json", "w") as f:
                json.dump(model, f)
            for ranks in 1, 4, 8:
                whole, part = (check_size(total, without, ranks, frozen) for frozen in ([], PREDICTOR))
                check(part[WAYS[0]] < whole[WAYS[0]], "what is frozen takes as much of a GPU")
                check(part["together"] < whole["together"], "what is frozen takes as much memory")
                check(whole[WAYS[0]] > whole[WAYS[1]] > whole[WAYS[2]], f"options that spare no memory: {whole}")
            for frozen in FROZEN:
                check(row(size, frozen) in readme, f"README.md lacks {row(size, frozen)}")
            out, mib = plan(4, "fsdp.activation_checkpointing=true", frames=80)
            found = int(re.search(r"root +([0-9]+)", out).group(1))
            check(abs(found - root) < 1e6, f"the root has {found} parameters")
            check("talker.model.layers.27" in out and "talker.code_predictor.model.layers.4" in out, out)
            check(WAYS[1] not in mib and WAYS[2] in mib, f"an option that is set already is told of: {mib}")
            check_fits(out, mib, 4)
            _, many = plan(4, "fsdp.activation_checkpointing=true")
            check(many["activations"] > mib["activations"], f"{many['activations']} MiB for 320 frames, as for 80")


def test_a_gpu_needs_memory_of_the_planned_kinds_only():
    # A GPU's memory does not contain samples, buffers and the program, but the libraries' memory and a little
    # for norms.
    with open("model.json", "w") as f:
        json.dump([*PUBLISHED.values()][-1][0], f)
    _, mib = plan(1, "bf16.enabled=false")
    rest = mib[WAYS[0]] - sum(mib[kind] for kind in KINDS[:7]) - mib["CUDA and NCCL, included in each of these"]
    check(0 <= rest < 8, f"{rest} MiB of a GPU are of no kind")


cases.main()
