#!/usr/bin/env python3
"""Three hosts under mpirun alone save and load through a shared store and through private ones, with the bits of a
run on one host. A host that boots with empty memory gets its files again."""
from hosts_train import LOCAL, cases, hosts, mpirun, private
from train_lib import check, config, losses, make_text, state, train

OVER = {"scheduler": {"type": "constant", "params": {}}}  # the state must not depend on the last step


@cases.shared
def undisturbed():
    """Runs on one host, undisturbed."""
    make_text()
    train(1, config("whole.json", max_steps=6, checkpoint={"dir": "whole"}, metrics="whole.jsonl", **OVER))


def check_run(name, redundancy, lost, ranks):
    """Three ranks save step 3, hosts are lost, and `ranks` ranks continue to the same results."""
    cases.use(undisturbed)
    path = config(checkpoint={"dir": name, "every": 2 if redundancy is None else 6,
                              "stores": private(name, redundancy) if redundancy else []},
                  metrics=f"{name}.jsonl", **OVER)
    mpirun(3, path, "max_steps=3")
    for host in lost:
        hosts.kill(host)
        hosts.boot(host)
    text = mpirun(ranks, path, "max_steps=6")
    origin = f"step 3 is loaded from {LOCAL}/{name}, after {2 * len(lost)} of its files were rebuilt"
    check((origin if lost else "continuing from step 3: shared/step-00000003") in text, text)
    check((state(6, name), losses(f"{name}.jsonl")) == (state(6, "whole"), losses("whole.jsonl")), f"{name}: another result")


def test_a_store_that_hosts_share():
    check_run("shared", None, (), 4)


def test_a_lost_host_gets_its_files_from_its_partner():
    check_run("partner", "partner", ("h2",), 4)


def test_two_lost_hosts_get_their_files_from_the_third():
    check_run("rs", "rs(2)", ("h2", "h3"), 3)


cases.main()
