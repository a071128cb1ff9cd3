#!/usr/bin/env python3
"""Token ids train as the bytes that they stand for, on any number of ranks. An id that the model does
not know ends the run with exit 2, at the start or when its sample comes, and no restart is tried."""
from train_lib import *
import array

make_text()
with open("text", "rb") as f:
    text = f.read()
for name, code in (("ids16", "H"), ("ids32", "I")):
    with open(name, "wb") as f:
        array.array(code, list(text)).tofile(f)
config("text.json", max_steps=4)
tokens = {"type": "tokens", "path": "ids16"}
config("tokens.json", max_steps=4, data=tokens)

train(2, "text.json", "checkpoint.dir=of-text", "metrics=text.jsonl")
train(3, "tokens.json")
train(1, "tokens.json", "data.path=ids32", "data.dtype=uint32", "checkpoint.dir=of-ids32",
      "metrics=ids32.jsonl")
check(losses() == losses("text.jsonl") == losses("ids32.jsonl"), "the losses are not those of the text")
check(state(4) == state(4, "of-text") == state(4, "of-ids32"), "the states are not those of the text")

for override, says in (("data.dtype=uint32", "ids16: the uint32 at byte 0 is "),
                       ("data.path=text", "text: the uint16 at byte 0 is "),
                       ("model.vocab_size=100", "; the model's vocabulary has 100")):
    _, err = train(2, "tokens.json", override, "--dry-run", expect=2)
    check(says in messages(err)[-1], f"{override}: {err}")

# Beyond what is looked at before the start.
with open("far", "wb") as f:
    array.array("H", [7] * 524288 + [300] * 1000000).tofile(f)
done = subprocess.run([f"{BIN}/dcp-run", "-n", "2", "--", f"{BIN}/dcp-train", "tokens.json",
                       "data.path=far", "checkpoint.dir=far-ckpt"], capture_output=True, text=True,
                      timeout=TIMEOUT)
check(done.returncode == 2, f"exit {done.returncode}: {done.stderr}")
check("far: the uint16 at byte " in done.stderr and "start 2" not in done.stderr, done.stderr)

# Ids of another width, and files that hold no plain ids, are refused at the start; what to do makes them right.
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
for path, overrides, says in (
        ("int32", [], "int32: between its ids as uint16 are zeros alone, so it holds ids of 4 bytes (int32): set data.dtype=uint32"),
        ("mixed", [], "mixed/b: between its ids"),
        ("int64", [], "it holds ids of 8 bytes (int64): write them anew as uint32"),
        ("int64", ["data.dtype=uint32"], "it holds ids of 8 bytes (int64)"),
        ("ids.npy", [], "ids.npy is an array of numpy's (.npy), and no plain ids: write its ids alone, as numpy.load(f)"),
        ("ids.gz", [], "ids.gz is compressed by gzip, and no plain ids: unpack it")):
    for vocabulary in "model.vocab_size=65536", "model.vocab_size=256":
        _, err = train(1, "tokens.json", vocabulary, f"data.path={path}", *overrides, "--dry-run", expect=2)
        check(says in messages(err)[-1], f"{path}: {err}")
train(1, "tokens.json", "data.path=int32", "data.dtype=uint32", "checkpoint.dir=of-int32", "metrics=int32.jsonl")
check(losses("int32.jsonl") == losses("text.jsonl"), "ids of int32")

# Zeros may be ids: few of them, or all.
for name, ids in (("zeros", [0] * 1000), ("few", [7, 0] * 20)):
    with open(name, "wb") as f:
        array.array("H", ids).tofile(f)
    train(1, "tokens.json", f"data.path={name}", "data.sequence_length=8", f"checkpoint.dir={name}-ckpt", "--dry-run")

# Files and bytes are told; a text that is none is, too, and trains.
os.mkdir("texts")
for name in "a", "b":
    shutil.copy("text", f"texts/{name}")
_, err = train(1, "text.json", "data.path=texts", "checkpoint.dir=texts-ckpt", "--dry-run")
check(" samples an epoch (2 files, " in err and "NUL" not in err, err)
with open("texts/c", "wb") as f:
    f.write(b"PNG..." + bytes(3) + text)
_, err = train(1, "text.json", "data.path=texts", "data.eval_path=int32", "checkpoint.dir=texts-ckpt", "--dry-run")
check("warning: data.path: texts/c has a NUL at byte 6, as no text has; its bytes are tokens all the same" in err, err)
check("warning: data.eval_path: int32 has a NUL at byte 1, " in err, err)
