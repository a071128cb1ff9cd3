"""PyTorch FSDP2 on the CPU: one process with one thread per rank, gloo, transformers' Qwen3 (qwen3_torch.py's if that
is missing), fused AdamW. With --device cuda on GPUs: one process per GPU, NCCL.

    peer_fsdp2.py MODEL.json --ranks N --batch B --sequence S --dtype fp32|bf16 [--compile]
                  [--widen] [--steps K] [--device cpu|cuda]

Trains on random tokens, with B samples per rank, and prints the seconds of each step when it ends, one per line. stderr
gets the time at which the first one begins, by CLOCK_MONOTONIC. --widen converts the operands of linear layers and of
attention from bf16 to fp32, and the results back. PyTorch does not do that, and its own bf16 products take up to 70
times as long as those in fp32 on a processor without bf16 instructions."""
import argparse
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch.distributed.device_mesh import init_device_mesh

try:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
except ImportError:  # PyTorch before 2.6
    from torch.distributed._composable.fsdp import MixedPrecisionPolicy, fully_shard
try:
    from transformers import Qwen3Config, Qwen3ForCausalLM
except (ImportError, RuntimeError):  # not installed, or not for this version of PyTorch
    from qwen3_torch import Qwen3
    Qwen3Config = None


def widen_products():
    def linear(self, x):
        return functional.linear(x.float(), self.weight.float()).to(x.dtype)

    def attention(query, key, value, *rest, **options):
        wide = (x.float() for x in (query, key, value))
        return narrow_attention(*wide, *rest, **options).to(query.dtype)

    narrow_attention = functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = attention
    torch.nn.Linear.forward = linear


def sharded_model(args, mesh):
    with open(args.model) as f:
        config = json.load(f)
    with torch.device(args.device):
        model = Qwen3ForCausalLM(Qwen3Config(**config, use_cache=False)) if Qwen3Config else Qwen3(config)
    layers = model.model.layers
    if args.compile:
        for i, layer in enumerate(layers):
            layers[i] = torch.compile(layer)
    options = {"mesh": mesh}
    if args.dtype == "bf16":
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16,
                                                    reduce_dtype=torch.float32)
    for layer in layers:
        fully_shard(layer, **options)
    fully_shard(model, **options)
    return model


def run(rank, args, port):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if args.widen:
        widen_products()
    on_gpu = args.device == "cuda"
    if on_gpu:
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if on_gpu else "gloo", rank=rank, world_size=args.ranks)
    model = sharded_model(args, init_device_mesh(args.device, (args.ranks,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    tokens = torch.randint(0, model.config.vocab_size, (args.batch, args.sequence),
                           device=args.device)
    if rank == 0:
        print("begins at", time.monotonic(), file=sys.stderr, flush=True)
    for _ in range(args.steps):
        start = time.perf_counter()
        model(input_ids=tokens, labels=tokens).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if on_gpu:
            torch.cuda.synchronize()
        dist.barrier()
        if rank == 0:
            print(time.perf_counter() - start, flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--sequence", type=int, required=True)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--widen", action="store_true")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    args = parser.parse_args()
    port = 29500 + os.getpid() % 2000
    if args.ranks == 1:
        run(0, args, port)
    else:
        torch.multiprocessing.spawn(run, (args, port), nprocs=args.ranks)


if __name__ == "__main__":
    main()
