#!/usr/bin/env python3
"""A disk or a server that fails while a run takes its directory is a failure, exit status 3, which
dcp-run tries again; only a directory that this user cannot use is a wrong configuration, 2."""
import errno
from train_lib import *

make_text()
small = config(max_steps=1)
E = errno
FAULTS = (("open", "/ckpt/.lock", E.EIO, E.ESTALE, E.ENOLCK, E.ENOSPC), ("open", "/ckpt", E.ESTALE),
          ("lock", "/ckpt/.lock", E.EIO, E.ENOLCK), ("write", "/ckpt/.lock", E.EIO, E.ENOSPC))


def armed(call, path, code):
    open("armed", "w").close()
    return {"LD_PRELOAD": os.environ["DIRECTORY_FAULT"], "FAULT_ARMED": f"{scratch}/armed",
            "FAULT_CALL": call, "FAULT_PATH": path, "FAULT_ERRNO": str(code)}


def run(command, environment):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=TIMEOUT, env={**os.environ, **environment})


failed = 0
for call, path, *codes in FAULTS:
    for code in codes:
        done = run([TRAINER, small], armed(call, path, code))
        what = f"{call} of {path}: {os.strerror(code)}"
        check(not os.path.exists("armed"), f"{what} was not met")
        # a store may look again, and be used without a lock
        check(done.returncode in (0, 3), f"{what}: exit {done.returncode}: {done.stderr}")
        failed += done.returncode == 3
        if done.returncode == 3:
            check(os.strerror(code) in messages(done.stderr)[-1], f"{what}: {done.stderr}")
check(failed >= 5, f"only {failed} faults ended a run")

faults = " ".join(f"{name}={value}" for name, value in armed("open", "/ckpt/.lock", errno.EIO).items())
done = run([f"{BIN}/dcp-run", "-n", "2", "--", "env", *faults.split(), TRAINER, small], {})
check(done.returncode == 0 and "dcp-run: start 2, " in done.stderr, f"not again: {done.stderr}")

# What is closed to us: as root a folder that cannot be changed, else one without the permission.
os.mkdir("closed")
as_root = os.getuid() == 0
if as_root:
    closes = subprocess.run(["chattr", "+i", "closed"], capture_output=True).returncode == 0
else:
    os.chmod("closed", 0o555)
    closes = True
try:
    if closes:
        done = run([TRAINER, small, "checkpoint.dir=closed/ckpt"], {})
        check(done.returncode == 2, f"closed: exit {done.returncode}: {done.stderr}")
        check("checkpoint.dir: " in messages(done.stderr)[-1], done.stderr)
finally:
    if as_root:
        subprocess.run(["chattr", "-i", "closed"], capture_output=True)
