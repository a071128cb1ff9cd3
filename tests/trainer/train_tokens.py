#!/usr/bin/env python3
"""Token ids train like the bytes that they stand for, on any number of ranks. An id that is not in the model's vocabulary
ends the run with exit status 2, at the start or when its sample comes, and dcp-run does not restart it."""
import array, os, shutil, subprocess
from train_lib import BIN, cases, check, config, losses, make_text, messages, state, TIMEOUT, train

tokens = {"type": "tokens", "path": "ids16"}


@cases.shared
def inputs():
    make_text()
    with open("text", "rb") as f:
        text = f.read()
    for name, code in (("ids16", "H"), ("ids32", "I")):
        with open(name, "wb") as f:
            array.array(code, list(text)).tofile(f)
    config("text.json", max_steps=4)
    config("tokens.json", max_steps=4, data=tokens)
    return text


@cases.shared
def trained_on_text():
    text = cases.use(inputs)
    train(2, "text.json", "checkpoint.dir=of-text", "metrics=text.jsonl")
    return text


def test_ids_train_like_bytes():
    cases.use(trained_on_text)
    train(3, "tokens.json")
    train(1, "tokens.json", "data.path=ids32", "data.dtype=uint32", "checkpoint.dir=of-ids32",
          "metrics=ids32.jsonl")
    check(losses() == losses("text.jsonl") == losses("ids32.jsonl"), "the losses are not those of the text")
    check(state(4) == state(4, "of-text") == state(4, "of-ids32"), "the states are not those of the text")


def test_ids_outside_the_vocabulary_are_refused():
    cases.use(inputs)
    for override, says in (("data.dtype=uint32", "ids16: the uint32 at byte 0 is "),
                           ("data.path=text", "text: the uint16 at byte 0 is "),
                           ("model.vocab_size=100", ", but the model's vocabulary has only 100")):
        with cases.part(f"{override}"):
            _, err = train(2, "tokens.json", override, "--dry-run", expect=2)
            check(says in messages(err)[-1], f"{override}: {err}")


def test_a_later_id_outside_the_vocabulary_ends_the_run():
    cases.use(inputs)
    # The id lies beyond the part that is checked before the start.
    with open("far", "wb") as f:
        array.array("H", [7] * 524288 + [300] * 1000000).tofile(f)
    done = subprocess.run([f"{BIN}/dcp-run", "-n", "2", "--", f"{BIN}/dcp-train", "tokens.json",
                           "data.path=far", "checkpoint.dir=far-ckpt"], capture_output=True, text=True,
                          timeout=TIMEOUT)
    check(done.returncode == 2, f"exit {done.returncode}: {done.stderr}")
    check("far: the uint16 at byte " in done.stderr and "start 2" not in done.stderr, done.stderr)


@cases.shared
def other_widths():
    text = cases.use(inputs)
    # Files of ids of another width, and of ids in other formats.
    for name, code in (("int32", "i"), ("int64", "q")):
        with open(name, "wb") as f:
            array.array(code, list(text)).tofile(f)
    NPY = b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '<u2', 'fortran_order': False, 'shape': (%d,), }" % len(text)
    with open("ids.npy", "wb") as f:
        f.write(NPY.ljust(127) + b"\n" + array.array("H", list(text)).tobytes())
    with open("ids.gz", "wb") as f:
        f.write(b"\x1f\x8b\x08\x00" + bytes(range(1, 201)))
    os.mkdir("mixed")
    shutil.copy("ids16", "mixed/a")
    shutil.copy("int32", "mixed/b")
    return text


def test_files_that_hold_no_plain_ids_are_refused():
    cases.use(other_widths)
    for path, overrides, says in (
            ("int32", [], "int32: read as uint16, its ids have only zeros between them, so it holds ids of 4 bytes (int32): set data.dtype=uint32"),
            ("mixed", [], "mixed/b: read as uint16, its ids"),
            ("int64", [], "it holds ids of 8 bytes (int64): write them again as uint32"),
            ("int64", ["data.dtype=uint32"], "it holds ids of 8 bytes (int64)"),
            ("ids.npy", [], "ids.npy is an array of numpy (.npy), not plain ids: write only its ids, as numpy.load(f)"),
            ("ids.gz", [], "ids.gz is compressed by gzip, not plain ids: unpack it")):
        with cases.part(f"{path}, {overrides}"):
            for vocabulary in "model.vocab_size=65536", "model.vocab_size=256":
                _, err = train(1, "tokens.json", vocabulary, f"data.path={path}", *overrides, "--dry-run", expect=2)
                check(says in messages(err)[-1], f"{path}: {err}")


def test_the_advice_for_wider_ids_works():
    cases.use(trained_on_text)
    cases.use(other_widths)
    train(1, "tokens.json", "data.path=int32", "data.dtype=uint32", "checkpoint.dir=of-int32", "metrics=int32.jsonl")
    check(losses("int32.jsonl") == losses("text.jsonl"), "ids of int32")


def test_few_or_only_zeros_are_ids():
    cases.use(inputs)
    for name, ids in (("zeros", [0] * 1000), ("few", [7, 0] * 20)):
        with cases.part(f"{name}"):
            with open(name, "wb") as f:
                array.array("H", ids).tofile(f)
            train(1, "tokens.json", f"data.path={name}", "data.sequence_length=8", f"checkpoint.dir={name}-ckpt",
                  "--dry-run")


def test_a_text_with_nuls_is_a_warning():
    text = cases.use(other_widths)
    # The run trains nevertheless, and reports the number of files.
    os.mkdir("texts")
    for name in "a", "b":
        shutil.copy("text", f"texts/{name}")
    _, err = train(1, "text.json", "data.path=texts", "checkpoint.dir=texts-ckpt", "--dry-run")
    check(" samples per epoch (2 files, " in err and "NUL" not in err, err)
    with open("texts/c", "wb") as f:
        f.write(b"PNG..." + bytes(3) + text)
    _, err = train(1, "text.json", "data.path=texts", "data.eval_path=int32", "checkpoint.dir=texts-ckpt", "--dry-run")
    check("warning: data.path: texts/c has a NUL at byte 6, which no text has; its bytes are used as tokens "
          "nevertheless" in err, err)
    check("warning: data.eval_path: int32 has a NUL at byte 1, " in err, err)


cases.main()
