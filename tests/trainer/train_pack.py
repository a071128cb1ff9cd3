#!/usr/bin/env python3
"""data.pack: several records per sample. A run is the same on any number of ranks, with any strategy and after a kill; the
loss of all records is the one without packing; evaluations, several sources, plans and resumed runs account for it;
errors are refused in one line."""
import os
from train_lib import (cases, check, config, losses, make_records, metrics, MODEL, state, train,
                       train_killed)


def configured(directory, data={}, **more):
    config(**{"max_steps": 6, "train_batch_size": 8, "scheduler": {"type": "constant"},
              "metrics": f"{directory}.jsonl", **more},
           data={"type": "records", "path": "all.safetensors", "sequence_length": 48, "pack": True, **data},
           checkpoint={"dir": directory})


@cases.shared
def records():
    make_records("all.safetensors", lambda i, n: 1)
    make_records("ends.safetensors", lambda i, n: i == n - 1)


@cases.shared
def one_rank():
    """Runs on one rank. Returns the number of samples per epoch."""
    cases.use(records)
    configured("on-1")
    said = "".join(train(1, "config.json"))
    check("64 records are packed into these samples, and fill 9" in said, said)
    samples = int(said.split(" samples per epoch")[0].split()[-1])
    check(samples < 32, f"64 records are {samples} samples")
    return samples


def test_any_number_of_ranks_gives_the_same():
    cases.use(one_rank)
    for ranks in 2, 3, 8:
        configured(f"on-{ranks}")
        said = "".join(train(ranks, "config.json"))
        check("64 records are packed into these samples, and fill 9" in said, said)
        check(state(6, f"on-{ranks}") == state(6, "on-1"), f"{ranks} ranks have saved other bytes")
        check(losses(f"on-{ranks}.jsonl") == losses("on-1.jsonl"), f"{ranks} ranks have other losses")


def test_a_killed_run_gives_the_same():
    cases.use(one_rank)
    configured("killed")
    train_killed("killed")
    check(state(6, "killed") == state(6, "on-1"), "a run that was killed has saved other bytes")


def test_another_strategy_gives_the_same():
    cases.use(one_rank)
    configured("stage-1")
    train(3, "config.json", "zero_optimization.stage=1", "fsdp.activation_checkpointing=true")
    check(state(6, "stage-1") == state(6, "on-1"), "another strategy has saved other bytes")


def test_the_loss_of_all_records_is_that_without_packing():
    samples = cases.use(one_rank)
    # The batch contains all samples, so the loss of the first step is that of all records.
    loss = {}
    for pack in False, True:
        for family, model in ("qwen3", MODEL), ("gpt2", {"model_type": "gpt2", "vocab_size": 259, "n_embd": 32,
                                                         "n_head": 4,
                                                         "n_layer": 2, "n_positions": 48, "resid_pdrop": 0.0,
                                                         "embd_pdrop": 0.0, "attn_pdrop": 0.0}):
            name = f"whole-{family}-{pack}"
            configured(name, {"pack": pack, "eval_path": "ends.safetensors"}, model=model, max_steps=1,
                       optimizer={"params": {"lr": 3e-3}},
                       train_batch_size=samples if pack else 64, train_micro_batch_size_per_gpu=1)
            train(2, "config.json")
            line = metrics(f"{name}.jsonl")[0]
            loss[family, pack] = line["loss"], line["grad_norm"], line["eval_loss"]
    for family in "qwen3", "gpt2":
        for packed, apart, what in zip(loss[family, True], loss[family, False],
                                       ("loss", "norm", "loss of an evaluation")):
            off = 1e-5 if what != "loss" else 1e-6  # a norm; or rounding that an update by signs has enlarged
            check(abs(packed - apart) <= off * apart, f"{family}: {what} {packed}, without packing {apart}")


def test_several_sources():
    cases.use(records)
    configured("mixed", {"sources": [{"path": "ends.safetensors", "weight": 0.5}]})
    train(2, "config.json", "max_steps=2")
    one = state(2, "mixed")
    configured("mixed-3", {"sources": [{"path": "ends.safetensors", "weight": 0.5}]})
    train(3, "config.json", "max_steps=2")
    check(state(2, "mixed-3") == one, "three ranks have saved other bytes of two sources")


def test_a_resume_without_packing_is_a_warning():
    cases.use(one_rank)
    configured("on-1", {"pack": False})
    _, err = train(1, "config.json", "max_steps=7")
    check("the checkpoint was saved with data.pack true, but the run continues with false" in err, err)


def test_a_plan_has_more_memory_for_packed_samples():
    cases.use(records)
    # Sequences are so long that the numbers of records are visible in MiB.
    samples_mib = {}
    for pack in "true", "false":
        configured("planned")
        plan, _ = train(1, "config.json", f"data.pack={pack}", "data.sequence_length=4096",
                        "model.max_position_embeddings=4096", "--plan", "--ranks", "2")
        samples_mib[pack] = float(plan.split("\n  samples ")[1].split()[0])
    check(samples_mib["true"] > samples_mib["false"] > 0, f"{samples_mib}")


def test_wrong_keys_are_refused():
    cases.use(records)
    configured("refused", {"type": "text"})
    for overrides, says in ((["data.path=text"], "data.pack: data.type text has no records to pack; leave data.pack out, or"),
                            (["data.pack=1"], "data.pack: 1 is not true or false"),
                            (["data.type=records", "data.sequence_length=16"], "all.safetensors: record"),
                            (["data.packing=true"], "data.packing: unknown key; did you mean data.pack?")):
        with cases.part(f"{overrides}"):
            _, err = train(1, "config.json", *overrides, expect=2)
            check(says in err and err.count("\n") == 1 and not os.path.exists("refused"), err)


cases.main()
