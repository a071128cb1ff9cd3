"""migration_ranks.py PROGRAM: its train(until) trains, and continues from checkpoints in the working directory, if there
are any. The losses of a training that continues are those of one that does not. Runs alone or under torchrun."""

import os
import runpy
import sys
import warnings

import torch.distributed as dist

warnings.simplefilter("ignore")
is_rank = "RANK" in os.environ
if is_rank:
    dist.init_process_group("gloo")
train = runpy.run_path(sys.argv[1])["train"]
train(3)
continued = train(6)
if is_rank:
    dist.barrier()
os.makedirs("whole", exist_ok=True)
os.chdir("whole")
assert continued == train(6), continued
if is_rank:
    dist.barrier()
    dist.destroy_process_group()
