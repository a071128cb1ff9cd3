#!/usr/bin/env python3
"""In a Slurm job while no controller answers, dcp-run says so and starts nothing, unless the job has a single
node, for which it needs no controller. When the controller is back, the same job trains."""
import os
from slurm_lib import cases, slurm, text, until
from train_lib import BIN, TRAINER, check, config, make_text, steps


def submit(nodes, name, directory):
    return slurm.submit(f"--nodes={nodes}", "--ntasks-per-node=1", f"--output={name}", "job.sh", directory)


def test_a_job_of_several_nodes_waits_for_a_controller():
    make_text()
    path = config(max_steps=2, metrics=None)
    with open("job.sh", "w") as f:
        f.write(f"""#!/bin/bash
touch running.$1
until [ -e go ]; do sleep 0.02; done
{BIN}/dcp-run -n $SLURM_NTASKS -- {TRAINER} {path} checkpoint.dir=$1
echo "status $?"
""")
    submit(3, "first", "ckpt")
    submit(1, "alone", "single")
    until(lambda: os.path.exists("running.ckpt") and os.path.exists("running.single"), "both jobs")
    slurm.stop_controller()
    open("go", "w").close()
    until(lambda: "status" in text("first") and "status" in text("alone"), "answers")
    check("no controller of Slurm answers" in text("first") and text("first").endswith("status 3\n"), text("first"))
    check("start 1" not in text("first") and not os.path.exists("ckpt"), text("first"))
    check(text("alone").endswith("status 0\n") and steps("single") == [1, 2], text("alone"))
    slurm.start_controller()
    slurm.wait(submit(3, "second", "ckpt"), "COMPLETED")
    check(text("second").endswith("status 0\n") and steps() == [1, 2], text("second"))


cases.main()
