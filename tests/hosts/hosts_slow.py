#!/usr/bin/env python3
"""A link of 10 Mbit/s only makes a run slow: no host is given up, and the bits are the same."""
from hosts_train import Supervised, cases, host_file, hosts, private
from train_lib import check, config, losses, make_text, state, train


def test_a_slow_link_gives_up_no_host():
    make_text()
    over = {"max_steps": 3, "metrics": "whole.jsonl"}
    train(1, config("whole.json", checkpoint={"dir": "whole", "every": 3}, **over))
    cluster = host_file(*(f"{name} slots=1" for name in hosts.names))
    hosts.slow("h3", "10mbit")
    path = config(checkpoint={"dir": "slow", "every": 3, "stores": private("slow", "partner")},
                  **{**over, "metrics": "slow.jsonl"})
    text = Supervised("slow", ["-n", 3, "--hosts", cluster], path).ends()
    print(text)
    check("restart" not in text, text)
    check((state(3, "slow"), losses("slow.jsonl")) == (state(3, "whole"), losses("whole.jsonl")), "another result")


cases.main()
