#!/usr/bin/env python3
"""A failure after a run's first step loses nothing: the last good step is saved first. A batch without a token that
counts is skipped. Evaluation data are checked before the first step."""
import json, os, random, shutil, struct
from train_lib import cases, check, config, losses, make_text, metrics, Run, state, steps, train

EVERY = 1000  # no save is due before the end of the run


def configured(directory, **over):
    return config(**{"max_steps": 8, "train_batch_size": 4, "scheduler": {"type": "constant"},
                     "metrics": f"{directory}.jsonl",
                     "checkpoint": {"dir": directory, "every": EVERY}, **over})


def records(path, n=64, bad=(), masked=()):
    """Writes n records of 32 bytes. `bad` ones have an id that is not in the vocabulary, `masked` ones count nowhere."""
    generator = random.Random(5)
    ids = [generator.choice(b"abcdefgh") for i in range(n * 32)]
    mask = [1] * len(ids)
    for i in bad:
        ids[32 * i + 5] = 259
    for i in masked:
        mask[32 * i:32 * (i + 1)] = [0] * 32
    starts = [32 * i for i in range(n + 1)]
    header, at = {}, 0
    for name, dtype, form, values in ("starts", "I64", "q", starts), ("input_ids", "U32", "I", ids), ("loss_mask", "U8", "B", mask):
        data = struct.pack(f"<{len(values)}{form}", *values)
        header[name] = {"dtype": dtype, "shape": [len(values)], "data_offsets": [at, at + len(data)], "data": data}
        at += len(data)
    bytes_ = b"".join(entry.pop("data") for entry in header.values())
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + bytes_)
    return path


data = {"type": "records", "sequence_length": 32}
MANY = 5000  # only some of these are checked before the first step
BAD = 4321


@cases.shared
def inputs():
    make_text()
    records("good")
    records("many", n=MANY)
    records("bad", n=MANY, bad=[BAD])


@cases.shared
def stopped_by_bad_data():
    cases.use(inputs)
    # The id that is not in the vocabulary is in the batch of some later step.
    ended = {}
    for ranks in 1, 3:
        _, err = train(ranks, configured(f"bad-{ranks}", data={**data, "path": "bad"}, train_batch_size=64,
                                         max_steps=100), expect=2)
        check(f"data.path: bad: token 5 of record {BAD} is 259" in err, err)
        ended[ranks] = steps(f"bad-{ranks}")
        check(len(ended[ranks]) == 1
              and f"step {ended[ranks][0]}, the last one before the failure, is saved in bad-{ranks}" in err,
              f"{ended} {err}")
        check([line["step"] for line in metrics(f"bad-{ranks}.jsonl")] == list(range(1, ended[ranks][0] + 1)), err)
    last = ended[1][0]
    check(ended[3] == [last] and state(last, "bad-1") == state(last, "bad-3"), f"{ended}")
    return last


def test_the_step_before_bad_data_is_saved():
    last = cases.use(stopped_by_bad_data)
    train(2, configured("good-run", data={**data, "path": "many"}, train_batch_size=64, max_steps=last))
    check(state(last, "good-run") == state(last, "bad-1"), "what was saved is not what a run without the fault has")


def test_a_resumed_run_that_fails_at_once_keeps_its_step():
    last = cases.use(stopped_by_bad_data)
    if last > 1:
        train(2, configured("begun", data={**data, "path": "bad"}, train_batch_size=64, max_steps=last))
        _, err = train(2, configured("begun", data={**data, "path": "bad"}, train_batch_size=64, max_steps=100),
                       expect=2)
        check(steps("begun") == [last] and "the last one before the failure" not in err, err)


def test_only_finite_parameters_are_saved_when_a_run_diverges():
    cases.use(inputs)
    # The loss is not a number. Parameters that are finite are saved, others are not.
    for name, rate, saved in ("large", 1e20, [1]), ("not-finite", 1e30, []):
        with cases.part(f"{name}"):
            for ranks in 1, 2:
                over = {"optimizer": {"params": {"lr": rate, "weight_decay": 0 if saved else rate}},
                        "scheduler": {"type": "constant", "params": {"warmup_steps": 0}}}
                _, err = train(ranks, configured(f"{name}-{ranks}", **over), expect=3)
                said = ("step 1, the last one before the failure, is saved" if saved
                        else "step 1 has parameters that are not finite: it is not saved")
                check("the run has diverged" in err and said in err and steps(f"{name}-{ranks}") == saved, err)


def test_batches_without_a_token_that_counts_are_skipped():
    cases.use(inputs)
    # The same batches are skipped on any number of ranks, and through a resume.
    records("few", masked=[i for i in range(64) if i % 16])
    for ranks in 1, 3:
        _, err = train(ranks, configured(f"few-{ranks}", data={**data, "path": "few"}))
        lines = metrics(f"few-{ranks}.jsonl")
        skipped = sum(line.get("skipped_batches", 0) for line in lines)
        check(skipped > 0 and all(line["loss"] for line in lines), f"{lines}")
        check(err.count("counts for the loss; this message is not repeated") == 1
              and f"{skipped} batches were skipped" in err, err)
        check(lines[-1]["tokens"] == (8 + skipped) * 4 * 32, f"{lines[-1]}")
    check(losses("few-1.jsonl") == losses("few-3.jsonl") and state(8, "few-1") == state(8, "few-3"),
          "ranks skip others")
    for stop in 3, 5, 8:
        train(2, configured("few-parts", data={**data, "path": "few"}, max_steps=stop))
    check(state(8, "few-parts") == state(8, "few-1"), "a resumed run skips others")


def test_evaluation_data_are_checked_before_the_first_step():
    cases.use(inputs)
    records("masked", masked=range(64))
    for eval_path, says in ("bad", f"data.eval_path: bad: token 5 of record {BAD} is 259"), ("masked", "data.eval_path: nothing in it counts"):
        with cases.part(f"{eval_path}"):
            for args in [], ["--dry-run"]:
                _, err = train(2, configured("eval", data={**data, "path": "good", "eval_path": eval_path}), *args,
                               expect=2)
                check(says in err and not os.path.exists("eval"), err)


def test_a_step_is_saved_whose_evaluation_cannot_be_read():
    cases.use(inputs)
    # The data are cut while the run trains. The step also has its line in the metrics.
    shutil.copy("good", "cut")
    run = Run(2, configured("cut-run", data={**data, "path": "good", "eval_path": "cut"}, max_steps=100000,
                            eval_every=200))
    run.wait_for(lambda: os.path.exists("cut-run.jsonl") and len(metrics("cut-run.jsonl")) > 3, "the first steps")
    os.truncate("cut", 4096)
    status = run.wait()
    err = run.text(run.err)
    check(status == 3 and "step 200, the last one before the failure, is saved in cut-run" in err, f"{status} {err}")
    check(steps("cut-run") == [200] and metrics("cut-run.jsonl")[-1]["step"] == 200, err)


cases.main()
