#!/usr/bin/env python3
"""PyTorch stores the number of updates of each parameter, /optimizer/step/NAME. A run that continues from such a step has
its bias corrections, whatever the step's number, and its own steps keep the counts; so does a run that continues from
an export that was imported with its moments. Impossible counts are named."""
import json, math, os, re, struct, subprocess
from train_lib import cases, check, config, messages, metrics, SOURCE, state, step_path, tool, train

FOLDER = f"{SOURCE}/tests/data/golden/llama"
UPDATES = 2
NORM = "model.norm.weight"


def run(ranks, name, last, expect=0, **checkpoint):
    c = config(f"{name}.json", model=FOLDER, init=FOLDER, max_steps=last, train_batch_size=4,
               train_micro_batch_size_per_gpu=1,
               data={"type": "safetensors", "path": f"{FOLDER}/golden.safetensors", "sequence_length": 32},
               scheduler={"type": "constant", "params": {}}, checkpoint={"dir": name, **checkpoint},
               metrics=f"{name}.jsonl")
    return train(ranks, c, expect=expect)[1]


def numbers(name):
    return [(line["loss"], line["grad_norm"]) for line in metrics(f"{name}.jsonl")]


def tensors(path, section):
    """Returns shape and bytes of each tensor of an export."""
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    header.pop("__metadata__", None)
    return {f"/{section}/{name}": (t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


def save(directory, step, found, count):
    """Saves the state with a count for each parameter, as PyTorch would."""
    os.mkdir(directory)
    counts = {path.replace("/model/", "/optimizer/step/"): ([], count) for path in found if path.startswith("/model/")}
    lines = []
    for i, (path, (shape, data)) in enumerate({**counts, **found}.items()):
        with open(f"{directory}/.data-{i}", "wb") as f:
            f.write(data)
        lines.append(f"{path} F32 {','.join(map(str, shape)) or '-'} {directory}/.data-{i}\n")
    subprocess.run([os.environ["MAKE_STATE"], directory, str(step), "global", "{}"], input="".join(lines), text=True,
                   check=True)


@cases.shared
def whole_run():
    run(2, "whole", UPDATES + 4)
    tool("dcp-export", step_path(UPDATES, "whole"), "hf", "--with-optimizer")
    found = tensors("hf/model.safetensors", "model")
    counted = {path for path in found if path.startswith("/model/")}
    for name, tensor in tensors("hf/optimizer.safetensors", "optimizer").items():
        if name.startswith("/optimizer/step."):
            check(tensor == ([], struct.pack("<f", UPDATES)), f"{name}: {tensor}")
            counted.remove(name.replace("/optimizer/step.", "/model/"))
            continue
        found[re.sub("^/optimizer/(exp_avg_sq|exp_avg)[.]", r"/optimizer/\1/", name)] = tensor
    want = numbers("whole")[UPDATES:]
    return found, want


def test_a_step_with_counts_continues():
    found, want = cases.use(whole_run)
    save("late", 100, found, struct.pack("<f", UPDATES))
    for ranks in (1, 3):
        name = f"late{ranks}"
        run(ranks, name, 102, resume="late")
        run(ranks, name, 104)
        check(numbers(name) == want, f"{numbers(name)} after {UPDATES} updates, not {want}")


def test_an_import_with_moments_continues():
    found, want = cases.use(whole_run)
    # The import is step 0. A second import starts from the moments of the run that continued from it.
    sizes = {"one": (), "many": ("--max-shard-size", "20KB")}
    for i, (name, options) in enumerate(sizes.items()):
        tool("dcp-export", step_path(UPDATES, "whole"), f"hf-{name}", "--with-optimizer", *options)
        check(os.path.exists(f"hf-{name}/optimizer.safetensors") == (name == "one"), f"{name}: files")
        out = tool("dcp-import", f"hf-{name}", f"imported-{name}", "--with-optimizer")
        check("training starts with its moments" in out, out)
        err = run(1 + 2 * i, f"imported-{name}", 2)
        check("continuing from step 0" in err and "about.json" not in err, f"what computed an import: {err}")
        tool("dcp-export", f"imported-{name}", f"again-{name}", "--with-optimizer")
        check(tensors(f"again-{name}/optimizer.safetensors", "optimizer")[f"/optimizer/step.{NORM}"] ==
              ([], struct.pack("<f", UPDATES + 2)), "the count of an import's second step")
        tool("dcp-import", f"again-{name}", f"second-{name}", "--with-optimizer")
        run(2, f"second-{name}", 2)
        got = numbers(f"imported-{name}") + numbers(f"second-{name}")
        check(got == want, f"{name}: {got}, not {want}")
    check(state(2, "second-one") == state(2, "second-many"), "other files or ranks, another state")
    tool("dcp-import", "hf-one", "without")
    run(2, "without", 1)
    check(numbers("without")[0] == want[0] and state(1, "without") != state(1, "imported-one"),
          "moments without being asked")


def test_impossible_counts_are_named():
    found, _ = cases.use(whole_run)
    for name, step, count in (("infinite", 1, math.inf), ("negative", 1, -1.0), ("nan", 1, math.nan)):
        with cases.part(f"{name}"):
            save(name, step, found, struct.pack("<f", count))
            err = run(2, f"from-{name}", 3, expect=2, resume=name)
            check("the stored number of updates of" in messages(err)[-1], err)


def test_a_count_that_is_no_number_is_named():
    found, _ = cases.use(whole_run)
    save("shaped", 1, {**found, f"/optimizer/step/{NORM}": ([2], bytes(8))}, bytes(4))
    err = run(2, "from-shaped", 3, expect=2, resume="shaped")
    check(f"/optimizer/step/{NORM} is not a number" in messages(err)[-1], err)


cases.main()
