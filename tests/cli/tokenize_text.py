#!/usr/bin/env python3
"""examples/tokenize_text.py gives the ids that the tokenizers package gives, for the three kinds of
byte-level BPE, and says what it does not know."""
import array, json, os, subprocess, sys, tempfile

SOURCE = os.environ["DCP_SOURCE"]
DATA = f"{SOURCE}/tests/data/tokenizers"
folder = tempfile.TemporaryDirectory()
os.chdir(folder.name)


def fail(why):
    print("FAILED:", why)
    sys.exit(1)


def run(*args, expect=0):
    done = subprocess.run([sys.executable, f"{SOURCE}/examples/tokenize_text.py", *args],
                          capture_output=True, text=True)
    if done.returncode != expect:
        fail(f"{args}: exit {done.returncode}: {done.stderr}")
    return done.stdout + done.stderr


def ids(path, code="H"):
    found = array.array(code)
    with open(path, "rb") as f:
        found.frombytes(f.read())
    return list(found)


for name in ("gpt2", "llama3", "qwen"):
    out = run(f"{DATA}/{name}.json", "out.bin", f"{DATA}/sample.txt")
    with open(f"{DATA}/{name}.ids") as f:
        want = json.load(f)
    got = ids("out.bin")
    if got != want:
        at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        fail(f"{name}: id {at}: {got[at:at + 8]}, not {want[at:at + 8]}")
    if f"{len(want)} tokens, uint16; the model's vocab_size is to be at least 401" not in out:
        fail(f"{name}: {out}")

for text in "[]", "{", '"x"', '{"model": []}', '{"model": {"type": "BPE", "vocab": 3, "merges": 1}}':
    with open("broken.json", "w") as f:
        f.write(text)
    if "Traceback" in run("broken.json", "out3.bin", f"{DATA}/sample.txt", expect=2):
        fail(f"{text}: a traceback")
for out in ["nowhere/out.bin"]:
    if "tokenize_text.py: [Errno" not in run(f"{DATA}/gpt2.json", out, f"{DATA}/sample.txt", expect=2):
        fail(f"{out}: no message")

# Documents end where they are told to; a folder stands for its tokenizer.json; large vocabularies.
with open(f"{DATA}/gpt2.json") as f:
    spec = json.load(f)
spec["added_tokens"][-1]["id"] = 70000
os.mkdir("large")
with open("large/tokenizer.json", "w") as f:
    json.dump(spec, f)
for name, text in (("a", "the "), ("b", "<tool>")):
    with open(name, "w") as f:
        f.write(text)
run("large", "out.bin", "a", "b", "--end", "<|end|>")
got = ids("out.bin", "I")
if got[-3:] != [0, 70000, 0] or len(got) < 4:
    fail(f"documents: {got}")

os.makedirs("texts/sub/.git")
for name, text in (("texts/sub/b", "the "), ("texts/a", "<tool>"), ("texts/.hidden", "no"), ("texts/sub/.git/c", "no")):
    with open(name, "w") as f:
        f.write(text)
run("large", "files.bin", "texts/a", "texts/sub/b", "--end", "<|end|>")
run("large", "folder.bin", "texts", "--end", "<|end|>")
if ids("folder.bin", "I") != ids("files.bin", "I"):
    fail("a folder is not its files")
os.mkdir("empty")
if "empty holds no files" not in run("large", "out2.bin", "empty", expect=2) or os.path.exists("out2.bin"):
    fail("an empty folder is taken")

for change, says in (({"model": {**spec["model"], "type": "Unigram"}}, "no byte-level BPE"),
                     ({"normalizer": {"type": "Lowercase"}}, "the normalizer Lowercase is not known"),
                     ({"pre_tokenizer": {"type": "Metaspace"}}, "['Metaspace'] is not known")):
    with open("other.json", "w") as f:
        json.dump({**spec, **change}, f)
    if says not in run("other.json", "out2.bin", "a", expect=2):
        fail(f"{change} is taken")
if "is not in the vocabulary" not in run("large", "out2.bin", "a", "--end", "<eos>", expect=2):
    fail("an unknown end is taken")
if "No such file" not in run("nowhere.json", "out2.bin", "a", expect=2) or os.path.exists("out2.bin"):
    fail("something is made of nothing")
