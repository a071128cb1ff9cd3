#!/usr/bin/env python3
"""Shows that dcp-train learns what PyTorch learns, on 2 ranks; prints a table. Exit status 1 if a
target is missed.

    learns.py text DIR             200 steps of a small Qwen3 on the sources of Python's standard
                                   library. PyTorch has the same start, order of samples, AdamW,
                                   schedule and clipping. Target: validation losses within 1 %
    learns.py digits DIR           examples/configs/vit-digits.json on scikit-learn's digits. Targets:
                                   over 95 % of the 360 digits that it was not trained on, and
                                   transformers gives the exported model the same loss and accuracy
    learns.py finetune DIR MODEL   MODEL is a Hugging Face folder of a pretrained language model, such
                                   as real_model.py DIR --folder-only makes; 20 steps in bf16 after
                                   dcp-import. Targets: the loss falls, and transformers loads the
                                   export and finds the same validation loss in fp32 (1 %)
    learns.py chat DIR [MODEL]     30 steps of fine-tuning on chats made by rules, in fp32 and in bf16.
                                   PyTorch has the same records in the same order. Target: held-out
                                   losses in fp32 within 1 %. Also shows the answers of
                                   examples/sample.py before and after.
                                   MODEL has a chat template. Without MODEL, real_model.py DIR
                                   --folder-only fetches SmolLM2-135M-Instruct, which stays in DIR,
                                   or reports why it cannot, with exit status 77

Python needs torch, transformers, safetensors and numpy, and for digits scikit-learn; the environment of
train_peers.py has all of these except scikit-learn. DCP_BIN: where the programs are (build/bin). DIR: for
scratch files, which stay if something fails."""
import argparse
import importlib
import os
import shutil
import sys
import tempfile

KINDS = ("text", "digits", "finetune", "chat")
TAKES_MODEL = ("finetune", "chat")


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=KINDS)
    parser.add_argument("dir")
    parser.add_argument("model", nargs="?")
    args = parser.parse_args()
    if args.model is None and args.what == "finetune":
        parser.error("finetune wants a MODEL")
    if args.model is not None and args.what not in TAKES_MODEL:
        parser.error(f"{args.what} takes no MODEL")
    return args


def load(what):
    """Imports and returns the module of that name, which imports the peers."""
    try:
        importlib.import_module("learning.shared")  # sets variables that the peers read when they are imported
        return importlib.import_module(f"learning.{what}")
    except ModuleNotFoundError as e:
        print(f"learns.py: {sys.executable} has no {e.name}; with one that has, for example "
              "~/.cache/libdcp-peers/bin/python, which train_peers.py makes (pip install "
              "scikit-learn for digits):\n"
              f"    PYTHON {sys.argv[0]} {what} ...", file=sys.stderr)
        sys.exit(2)


def main():
    args = parse()
    module = load(args.what)
    os.makedirs(args.dir, exist_ok=True)
    scratch = tempfile.mkdtemp(dir=os.path.abspath(args.dir), prefix=f"learns-{args.what}-")
    ok = module.show(scratch, args.model) if args.model else module.show(scratch)
    if ok:
        shutil.rmtree(scratch)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
