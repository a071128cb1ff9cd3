#!/usr/bin/env python3
"""Continues a text with the model of a checkpoint, using the checkpoint's tokenizer.json: the text is converted to
token ids, dcp-train --sample --ids continues them, and its output is converted back to text. Needs the package
tokenizers (pip install tokenizers), and libdcp's programs: on the PATH, in build/bin of this source tree, or installed
together with this file.

    sample.py CKPT TEXT [--tokens N] [--temperature T] [--seed S] [--tokenizer FOLDER]

TEXT is used unchanged. A chat model needs it in the form of its chat template; chat_to_records.py prints that form.
"""
import argparse
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
PART = 1 << 20  # bytes that are read from a checkpoint's file at once
OPTIONS = "tokens", "temperature", "seed"  # of dcp-train


def fail(why, status=2):
    print(f"sample.py: {why}", file=sys.stderr)
    sys.exit(status)


def program(name):
    places = os.environ.get("PATH", ""), f"{HERE}/../build/bin", f"{HERE}/../../../bin"
    return shutil.which(name, path=os.pathsep.join(places)) or fail(f"there is no {name}: build it, or set PATH")


def carried(ckpt):
    """The tokenizer.json in a checkpoint."""
    content = bytearray()
    for at in itertools.count(0, PART):
        name = f"/files/tokenizer.json[{at}:{at + PART}]"
        done = subprocess.run([program("dcp-inspect"), "show", ckpt, name, f"--values={PART}", "--json"],
                              stdout=subprocess.PIPE)
        if done.returncode:
            fail(f"{ckpt} gives no tokenizer.json; name the model's by --tokenizer FOLDER", done.returncode)
        content += bytes(json.loads(done.stdout)["values"])
        if len(content) < at + PART:
            return content.decode()


def encode(tokenizer, text):
    """The ids of a text that is to be continued. Omits what the tokenizer appends. What the tokenizer puts before a
    text is included exactly once, even if the text already begins with it, for example because of a chat template."""
    mask = tokenizer.encode(text or "a").special_tokens_mask
    before, after = (len(list(itertools.takewhile(bool, side))) for side in (mask, mask[::-1]))
    ids = tokenizer.encode(text).ids
    ids = ids[:len(ids) - after]
    return ids[before:] if ids[:before] == ids[before:2 * before] else ids


def write(tokenizer, ids, stream):
    """Prints the text of the ids as they arrive, as far as its characters are complete. Special tokens have no text."""
    written, word = len(tokenizer.decode(ids)), b""
    while byte := stream.read(1):
        word += byte
        if byte.isspace() and word.strip():
            ids, word = [*ids, int(word)], b""
            text = tokenizer.decode(ids).rstrip("\ufffd")  # the first bytes of a character
            print(text[written:], end="", flush=True)
            written = max(written, len(text))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ckpt", help="a step's folder, or a directory of steps")
    parser.add_argument("text", help="what is continued")
    for name in OPTIONS:
        parser.add_argument(f"--{name}", help="as dcp-train has it")
    parser.add_argument("--tokenizer", metavar="FOLDER", help="a tokenizer, in place of the checkpoint's")
    args = parser.parse_args()
    file = args.tokenizer
    if file and os.path.isdir(file):
        file = os.path.join(file, "tokenizer.json")
    try:
        from tokenizers import Tokenizer
        tokenizer = Tokenizer.from_file(file) if file else Tokenizer.from_str(carried(args.ckpt))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        ids = encode(tokenizer, args.text)
    except ImportError:
        fail("needs tokenizers: pip install tokenizers", 3)
    except Exception as e:  # of any type: it depends on what is wrong with the file or the text
        fail(f"{file or args.ckpt}: the tokenizer fails: {e}")
    options = [f"--{name}={getattr(args, name)}" for name in OPTIONS if getattr(args, name) is not None]
    command = [program("dcp-train"), "--sample", " ".join(map(str, ids)), "--ids", *options, "--", args.ckpt]
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as going:
        write(tokenizer, ids, going.stdout)
    if going.returncode == 0:
        print()
    sys.exit(going.returncode)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # both end it without a traceback
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.stdout.reconfigure(encoding="utf-8")
    main()
