"""The works that every peer saves and loads: dcp-bench's tensors, one parameter and two moments each, in fp32, cut
on dimension 0. Also shared by all peers: arguments, durability, cold files, and the output."""

import argparse
import json
import math
import os
import zlib

import numpy

KINDS = ("param", "exp_avg", "exp_avg_sq")
LAYER = (
    ("input_layernorm", 1, 0),
    ("post_attention_layernorm", 1, 0),
    ("self_attn.q_proj", 2, 1),
    ("self_attn.k_proj", 1, 1),
    ("self_attn.v_proj", 1, 1),
    ("self_attn.o_proj", 1, 2),
    ("mlp.gate_proj", 3, 1),
    ("mlp.up_proj", 3, 1),
    ("mlp.down_proj", 1, 3),
)


def parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("op", choices=("save", "load", "async"))
    parser.add_argument("dir", help="where the checkpoint is")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--hidden", type=int, required=True)
    parser.add_argument("--vocab", type=int, required=True)
    parser.add_argument("--repeat", type=int, default=3)
    return parser


def arguments():
    return parser().parse_args()


def shapes(args):
    """Returns {name: shape} of all tensors, of all three kinds."""
    h = args.hidden
    model = {"model.embed_tokens.weight": (args.vocab, h), "model.norm.weight": (h,)}
    for layer in range(args.layers):
        for name, rows, cols in LAYER:
            shape = (rows * h, cols * h) if cols else (rows * h,)
            model[f"model.layers.{layer}.{name}.weight"] = shape
    return {f"{kind}.{name}": shape for kind in KINDS for name, shape in model.items()}


def total_bytes(args):
    total = 0
    for shape in shapes(args).values():
        elements = 1
        for size in shape:
            elements *= size
        total += 4 * elements
    return total


def rows_of(shape, rank, ranks):
    """Returns the first row and the end of the rank's rows, cut as torch.chunk does."""
    chunk = -(-shape[0] // ranks)
    return min(shape[0], rank * chunk), min(shape[0], (rank + 1) * chunk)


def rows(name, shape, first, end):
    """Returns rows of a tensor: numbers that differ in all tensors, and that compression makes hardly smaller, as
    with a trained model's. They are mixed from the elements' indices by MurmurHash3's last step."""
    width = math.prod(shape[1:])
    bits = numpy.arange(first * width, end * width, dtype=numpy.uint32)
    bits += numpy.uint32(zlib.crc32(name.encode()))
    for factor, shift in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
        bits ^= bits >> numpy.uint32(shift)
        bits *= numpy.uint32(factor)
    bits ^= bits >> numpy.uint32(16)
    return (bits.view(numpy.int32).astype(numpy.float32) / 2**31).reshape((end - first,) + shape[1:])


def files(folder):
    for base, _, names in os.walk(folder):
        yield from (os.path.join(base, name) for name in sorted(names))


def make_durable(folder, rank=0, ranks=1):
    """Syncs this rank's share of the files, and the folders."""
    paths = [path for i, path in enumerate(files(folder)) if i % ranks == rank]
    if rank == 0:
        paths += [base for base, _, _ in os.walk(folder)] + [os.path.dirname(folder)]
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def make_cold(folder):
    """Drops the files, which must be durable, from the page cache."""
    make_durable(folder)
    for path in files(folder):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def report(args, seconds, stall=0.0, **members):
    size = total_bytes(args)
    row = {**members, "op": args.op, "ranks": args.ranks, "bytes": size, "s": round(seconds, 4)}
    row |= {"gb_per_s": round(size / seconds / 1e9, 4), "stall_s": round(stall, 4)}
    print(json.dumps(row), flush=True)
