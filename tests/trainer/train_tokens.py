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
