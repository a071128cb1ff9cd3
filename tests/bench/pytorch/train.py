"""FSDP2 training of a model of 25 million parameters under torchrun; at every second step, 0.3 GB are saved beside the
next step. Rank 0 prints as JSON the median step beside a save, including the call that began the save, the median of the
other steps, and their ratio: first with saves that copy, without a fence, then with saves that do not copy, with a
fence.

A step of 1,024 tokens per rank takes some 2 s on two cores. The time that a save takes from it does not depend on its
length, and most of that time is not the library's: two threads that only write as many bytes past the page cache,
without copies and sums, took 43 and 57 ms from such steps on a virtual machine, and a whole save 40 to 48 ms.

  train.py DIR --steps N"""

import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard

import libdcp

WIDTH, LAYERS, WORDS, TOKENS, SEQUENCES = 512, 8, 1000, 128, 8


def make_model():
    layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, batch_first=True, dropout=0.0)
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False),
                          nn.Linear(WIDTH, WORDS))
    for block in model[1].layers:
        fully_shard(block)
    fully_shard(model)
    return model


def train(args, model, optimizer, copies):
    """Returns the median seconds of the steps beside a save, and of the others."""
    tokens = torch.randint(WORDS, (SEQUENCES, TOKENS + 1))
    times = {False: [], True: []}
    with libdcp.Store(f"{args.dir}/{'copied' if copies else 'fenced'}", keep=2) as store:
        state = None
        for step in range(args.steps):
            start = time.perf_counter()
            logits = model(tokens[:, :-1])
            nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
            if not copies:
                store.fence()
            optimizer.step()
            optimizer.zero_grad()
            dist.barrier()
            taken = time.perf_counter() - start
            if state is None:
                weights, moments = get_state_dict(model, optimizer)
                state = store.declare({"model": weights, "optimizer": moments})
            if step > 4:
                times[step % 2 == 1].append(taken)
            # The save runs beside the next step, to which the time of the call belongs unless the call copies.
            if step % 2 == 0:
                start = time.perf_counter()
                store.save_async(step, state, copy=copies)
                called = time.perf_counter() - start
            elif step > 4 and not copies:
                times[True][-1] += called
    return [statistics.median(times[saves]) for saves in (True, False)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir")
    parser.add_argument("--steps", type=int, default=30)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for copies in (True, False):
        beside, without = train(args, model, optimizer, copies)
        if dist.get_rank() == 0:
            print(json.dumps({"op": "train", "copy": copies, "beside_s": beside, "without_s": without,
                              "ratio": without / beside, "parameters": sum(p.numel() for p in model.parameters())}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
