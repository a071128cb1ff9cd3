#!/usr/bin/env python3
"""Frozen parameters keep their bytes and have no gradient, moments or share in the norm; the others are trained as
always. A resumed run may thaw and freeze, and reports which moments start at zero."""
import fnmatch, json, subprocess
from train_lib import (BIN, cases, check, config, losses, make_text, metrics, MODEL, state,
                       step_path, train)

FROZEN = ["model.embed*", "model.layers.1.*", "*.input_layernorm.weight", "*.down_proj.weight"]
MODEL1 = {**MODEL, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
          "tie_word_embeddings": False}


def over(name, **more):
    return config(model=MODEL1, checkpoint={"dir": name}, metrics=f"{name}.jsonl",
                  data={"sequence_length": 16}, **more)


def tensors(a, b):
    """Returns the status of each tensor's comparison."""
    done = subprocess.run([f"{BIN}/dcp-inspect", "diff", a, b, "--json", "--all", "--ignore-meta"],
                          capture_output=True, text=True)
    check(done.returncode in (0, 1), done.stderr)
    return {t["path"]: t["status"] for t in json.loads(done.stdout)["tensors"]}


def is_frozen(path, globs=FROZEN):
    return any(fnmatch.fnmatch(path.split("/")[-1], glob) for glob in globs)


# One update without clipping: trained parameters get the values that they get if nothing is frozen.
once = {"max_steps": 1, "gradient_clipping": 0.0, "scheduler": {"params": {"warmup_steps": 0}}}


@cases.shared
def nothing_frozen():
    make_text()
    train(1, over("all", **once))


def test_frozen_parameters_do_not_change_the_others():
    cases.use(nothing_frozen)
    train(1, over("some", frozen=FROZEN, **once))
    found = tensors(step_path(1, "all"), step_path(1, "some"))
    for path, status in found.items():
        moment = path.startswith("/optimizer")
        want = ("only_a" if moment else "changed") if is_frozen(path) else "same"
        check(status == want, f"{path}: {status}, not {want}")
    trained = [p.split("/")[-1] for p in found if p.startswith("/model/") and not is_frozen(p)]
    train(1, over("rest", frozen=trained, **once))
    norms = [metrics(f"{name}.jsonl")[0]["grad_norm"] for name in ("all", "some", "rest")]
    # Norms are printed with 9 digits, so a square is off by 1e-8 of it at most.
    check(abs(norms[0] ** 2 - norms[1] ** 2 - norms[2] ** 2) < 2.5e-8 * norms[0] ** 2, f"norms {norms}")


def test_a_head_alone_is_trained():
    cases.use(nothing_frozen)
    # The backward pass ends at the head, since nothing below it is trained.
    train(2, over("head", frozen=["model.*"], **once))
    for path, status in tensors(step_path(1, "all"), step_path(1, "head")).items():
        check((status == "same") == path.endswith("/lm_head.weight"), f"{path}: {status}")


@cases.shared
def on_ranks():
    make_text()
    # Many updates give the same bits on several ranks.
    for ranks in (1, 3):
        train(ranks, over(f"on{ranks}", frozen=FROZEN, max_steps=4))
        check(losses(f"on{ranks}.jsonl") == losses("on1.jsonl"), f"losses on {ranks} ranks")
        check(state(4, f"on{ranks}") == state(4, "on1"), f"state.h5 on {ranks} ranks differs")


def test_frozen_bytes_stay_on_any_ranks():
    cases.use(on_ranks)
    for path, status in tensors(step_path(1, "on1"), step_path(4, "on1")).items():
        check((status == "same") == is_frozen(path), f"{path}: {status} in steps 1 and 4")


def test_a_resume_with_other_globs_thaws_and_freezes():
    cases.use(on_ranks)
    # Moments of thawed parameters start at zero; those of newly frozen ones are removed.
    THAWED = FROZEN[:1] + ["model.norm.weight"]
    _, err = train(2, over("on3", frozen=THAWED, max_steps=5))
    check("were frozen when on3/step-00000004 was saved: their moments start at zero" in err, err)
    check('with frozen ["model.embed*"' in err and ', but the run continues with ["model.embed*"' in err, err)
    for path, status in tensors(step_path(4, "on3"), step_path(5, "on3")).items():
        thawed, frozen = is_frozen(path), is_frozen(path, THAWED)
        want = "same" if frozen else "changed"
        if path.startswith("/optimizer"):
            want = "only_a" if frozen else "only_b" if thawed else "changed"
        check(status == want, f"{path}: {status}, not {want}")
    train(1, over("on1", frozen=THAWED, max_steps=5))
    check(state(5, "on1") == state(5, "on3"), "state.h5 after thawing differs with the ranks")


cases.main()
