#!/usr/bin/env python3
"""A rank less would be a world that the store refuses, as one host would have two of three ranks of a partner's copies: the
run goes on with the next number and spread that it takes."""
from hosts_train import *

LAST = 12
cluster = host_file("h1 slots=2", "h2 slots=2")
path = config(max_steps=LAST, checkpoint={"dir": "ckpt", "every": 4, "stores": private("ckpt", "partner")})
run = Supervised("world", ["-n", 4, "--hosts", cluster, "--on-failure", "shrink", "--min", 2], path)
run.at_step(3, "metrics.jsonl")
os.kill(ranks_at("h2")[0], signal.SIGKILL)
text = run.ends()
check("the ranks refuse to be 3 there, as their messages say; next: 2 ranks, spread evenly" in text, text)
check(steps()[-1] == LAST and [line["step"] for line in metrics()] == list(range(1, LAST + 1)), text)
check(text.count(f"steps in {LOCAL}/ckpt survive the loss of any 1 host") == 2, text)  # told by both worlds
check({line["ranks"] for line in metrics()} == {4, 2} and "which no restart would change" not in text, text)
check_clear()

# Where none is left, the slot whose rank died is better than none.
path = config(max_steps=LAST, checkpoint={"dir": "none", "every": 4, "stores": private("none", "partner")}, metrics="none.jsonl")
run = Supervised("none", ["-n", 4, "--hosts", cluster, "--on-failure", "shrink", "--min", 3], path)
run.at_step(3, "none.jsonl")
os.kill(ranks_at("h2")[0], signal.SIGKILL)
text = run.ends()
check("next: 4 ranks, with the slots whose ranks died" in text, text)
check([line["step"] for line in metrics("none.jsonl")] == list(range(1, LAST + 1)), text)
check_clear()
