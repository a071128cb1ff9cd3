#!/usr/bin/env python3
"""examples/tokenize_text.py gives the ids of the tokenizers package, for the three kinds of byte-level BPE, and
reports tokenizers that it does not support."""
import array, functools, json, os, subprocess, sys
from hf_folder import SOURCE, cases, check

DATA = f"{SOURCE}/tests/data/tokenizers"
END = "<|end|>"


def run(*args, expect=0):
    done = subprocess.run([sys.executable, f"{SOURCE}/examples/tokenize_text.py", *args],
                          capture_output=True, text=True)
    check(done.returncode == expect, f"{args}: exit {done.returncode}: {done.stderr}")
    return done.stdout + done.stderr


def ids(path, code="H"):
    found = array.array(code)
    with open(path, "rb") as f:
        found.frombytes(f.read())
    return list(found)


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def check_ids(name):
    out = run(f"{DATA}/{name}.json", "out.bin", f"{DATA}/sample.txt")
    with open(f"{DATA}/{name}.ids") as f:
        want = json.load(f)
    got = ids("out.bin")
    if got != want:
        at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        check(False, f"{name}: id {at}: {got[at:at + 8]}, not {want[at:at + 8]}")
    check(f"{len(want)} tokens, uint16; the model's vocab_size is to be at least 401" in out, f"{name}: {out}")


def test_ids_of_gpt2():
    check_ids("gpt2")


def test_ids_of_llama3():
    check_ids("llama3")


def test_ids_of_qwen():
    check_ids("qwen")


def test_broken_tokenizers_are_refused_without_a_traceback():
    for text in "[]", "{", '"x"', '{"model": []}', '{"model": {"type": "BPE", "vocab": 3, "merges": 1}}':
        with cases.part(text):
            write("broken.json", text)
            check("Traceback" not in run("broken.json", "out.bin", f"{DATA}/sample.txt", expect=2), f"{text}: a traceback")


def test_an_output_that_cannot_be_written_is_an_error():
    out = "nowhere/out.bin"
    check("tokenize_text.py: [Errno" in run(f"{DATA}/gpt2.json", out, f"{DATA}/sample.txt", expect=2), f"{out}: no message")


@functools.cache
def specification():
    """Returns GPT-2's tokenizer, with an id of more than 16 bits."""
    with open(f"{DATA}/gpt2.json") as f:
        spec = json.load(f)
    spec["added_tokens"][-1]["id"] = 70000
    return spec


def make_large():
    """Makes the tokenizer "large", whose ids need 32 bits, and the texts "a" and "b"."""
    os.mkdir("large")
    write("large/tokenizer.json", json.dumps(specification()))
    write("a", "the ")
    write("b", "<tool>")


def test_documents_end_as_told_and_large_ids_have_32_bits():
    make_large()
    run("large", "out.bin", "a", "b", "--end", END)
    got = ids("out.bin", "I")
    check(got[-3:] == [0, 70000, 0] and len(got) >= 4, f"documents: {got}")


def test_a_folder_of_texts_is_its_files():
    make_large()
    os.makedirs("texts/sub/.git")
    for name, text in (("texts/sub/b", "the "), ("texts/a", "<tool>"), ("texts/.hidden", "no"), ("texts/sub/.git/c", "no")):
        write(name, text)
    run("large", "files.bin", "texts/a", "texts/sub/b", "--end", END)
    run("large", "folder.bin", "texts", "--end", END)
    check(ids("folder.bin", "I") == ids("files.bin", "I"), "a folder is not its files")


def test_an_empty_folder_is_refused():
    make_large()
    os.mkdir("empty")
    said = run("large", "out.bin", "empty", expect=2)
    check("empty holds no files" in said and not os.path.exists("out.bin"), said)


def test_unknown_parts_of_a_tokenizer_are_refused():
    make_large()
    for change, says in (({"model": {**specification()["model"], "type": "Unigram"}}, "no byte-level BPE"),
                         ({"normalizer": {"type": "Lowercase"}}, "the normalizer Lowercase is not known"),
                         ({"pre_tokenizer": {"type": "Metaspace"}}, "['Metaspace'] is not known")):
        with cases.part(says):
            write("other.json", json.dumps({**specification(), **change}))
            check(says in run("other.json", "out.bin", "a", expect=2), f"{change} is taken")


def test_an_end_that_is_not_in_the_vocabulary_is_refused():
    make_large()
    check("is not in the vocabulary" in run("large", "out.bin", "a", "--end", "<eos>", expect=2), "an unknown end is taken")


def test_a_missing_tokenizer_is_refused():
    make_large()
    said = run("nowhere.json", "out.bin", "a", expect=2)
    check("No such file" in said and not os.path.exists("out.bin"), said)


cases.main()
