#!/usr/bin/env python3
"""In a job of Slurm while no controller answers, dcp-run says so and starts nothing. When it is back,
the same job trains."""
from slurm_lib import *

path = config(max_steps=2)
with open("job.sh", "w") as f:
    f.write(f"""#!/bin/bash
until [ -e go ]; do sleep 0.02; done
{BIN}/dcp-run -n 3 -- {TRAINER} {path}
echo "status $?"
""")


def submit(log):
    return slurm.submit("--nodes=3", "--ntasks-per-node=1", f"--output={log}", "job.sh")


job = submit("first")
slurm.wait(job, "RUNNING")
slurm.stop_controller()
open("go", "w").close()
until(lambda: "status" in text("first"), "an answer")
check("no controller of Slurm answers" in text("first") and text("first").endswith("status 3\n"), text("first"))
check("start 1" not in text("first") and not os.path.exists("ckpt"), text("first"))
slurm.start_controller()
slurm.wait(submit("second"), "COMPLETED")
check(text("second").endswith("status 0\n") and steps() == [1, 2], text("second"))
