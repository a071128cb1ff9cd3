#!/usr/bin/env python3
"""A host of the file that is not there when the run begins: left out where that is allowed, else the
run ends with a message that names it and says what to do. Nothing is left on the others."""
from hosts_train import *

cluster = host_file("h1 slots=1", "h2 slots=1", "h3 slots=1")
hosts.kill("h3")
path = config(max_steps=2)
text = Supervised("same", ["-n", 3, "--hosts", cluster, "--max-restarts", 1], path).ends(3)
print(text)
check("h3" in text and "--on-failure shrink" in text, text)
text = Supervised("least", ["-n", 3, "--hosts", cluster, "--on-failure", "shrink", "--min", 3, "--max-restarts", 0], path).ends(3)
print(text)
check("h3" in text and "--min" in text, text)
check(not os.path.exists("ckpt/step-00000001"), "a step was done")
text = Supervised("shrink", ["-n", 3, "--hosts", cluster, "--on-failure", "shrink"], path).ends()
print(text)
lost_s = re.search(r"start 2: .*: ([0-9.]+) s$", text, re.M)
check(lost_s and float(lost_s[1]) < TIMEOUT and "2 starts, 1 after failures" in text, f"not counted: {text}")
check(steps() == [1, 2] and "on 2 ranks" in text, text)
check_clear(("h1", "h2"))
