#!/usr/bin/env python3
"""A disk or server that fails while a run opens its directory or its other files is a failure, exit status 3, which dcp-run
tries again. Only a directory or file that this user cannot use is a wrong configuration, 2."""
import errno, os, subprocess
from train_lib import BIN, cases, check, config, make_text, messages, TIMEOUT, TRAINER

E = errno
FAULTS = (("open", "/ckpt/.lock", E.EIO, E.ESTALE, E.ENOLCK, E.ENOSPC), ("open", "/ckpt", E.ESTALE),
          ("lock", "/ckpt/.lock", E.EIO, E.ENOLCK), ("write", "/ckpt/.lock", E.EIO, E.ENOSPC))


def armed(call, path, code, skip=0):
    open("armed", "w").close()
    return {"LD_PRELOAD": os.environ["DIRECTORY_FAULT"], "FAULT_ARMED": f"{os.getcwd()}/armed",
            "FAULT_CALL": call, "FAULT_PATH": path, "FAULT_ERRNO": str(code),
            "FAULT_SKIP": str(skip)}


def run(command, environment):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=TIMEOUT, env={**os.environ, **environment})


@cases.shared
def inputs():
    make_text()
    config(max_steps=1)


def test_a_failing_disk_ends_the_run_with_3():
    cases.use(inputs)
    failed = 0
    for call, path, *codes in FAULTS:
        for code in codes:
            done = run([TRAINER, "config.json"], armed(call, path, code))
            what = f"{call} of {path}: {os.strerror(code)}"
            check(not os.path.exists("armed"), f"{what} was not met")
            # A store may try again, and be used without a lock.
            check(done.returncode in (0, 3), f"{what}: exit {done.returncode}: {done.stderr}")
            failed += done.returncode == 3
            if done.returncode == 3:
                check(os.strerror(code) in messages(done.stderr)[-1], f"{what}: {done.stderr}")
    check(failed >= 5, f"only {failed} faults ended a run")


def test_a_file_that_cannot_be_read_now_ends_the_run_with_3():
    cases.use(inputs)
    os.mkdir("lines")
    os.mkdir("spill")
    with open("tokenizer.json", "w") as f:
        f.write("{}")
    tokenizer = ["data.tokenizer=tokenizer.json", "checkpoint.dir=tokens"]
    offload = ["fsdp.cpu_offload=true", "fsdp.offload_path=spill", "checkpoint.dir=offloaded"]
    trace = ["--trace", "trace.json", "checkpoint.dir=traced"]
    for call, path, skip, args in (
            ("fopen", "config.json", 0, []), ("access", "lines/", 0, ["metrics=lines/1.jsonl"]),
            ("access", "text", 0, []), ("access", "tokenizer.json", 0, tokenizer), ("open", "tokenizer.json", 0, tokenizer),
            ("open", "spill", 0, offload), ("fopen", "trace.json", 2, trace)):
        for code, status in ((E.EIO, 3), (E.ESTALE, 3), (E.EACCES, 2)):
            with cases.part(f"{call} of {path}: {os.strerror(code)}"):
                done = run([TRAINER, "config.json", *args], armed(call, path, code, skip))
                check(not os.path.exists("armed"), "was not met")
                check(done.returncode == status and os.strerror(code) in messages(done.stderr)[-1],
                      f"exit {done.returncode}: {done.stderr}")


def test_dcp_run_tries_again_after_a_failing_disk():
    cases.use(inputs)
    faults = " ".join(f"{name}={value}" for name, value in armed("open", "/ckpt/.lock", errno.EIO).items())
    done = run([f"{BIN}/dcp-run", "-n", "2", "--", "env", *faults.split(), TRAINER, "config.json"], {})
    check(done.returncode == 0 and "dcp-run: start 2, " in done.stderr, f"not again: {done.stderr}")


def test_a_directory_without_permission_is_a_wrong_configuration():
    cases.use(inputs)
    # For root, the folder is one that cannot be changed; otherwise one without the permission.
    os.mkdir("closed")
    as_root = os.getuid() == 0
    if as_root:
        closes = subprocess.run(["chattr", "+i", "closed"], capture_output=True).returncode == 0
    else:
        os.chmod("closed", 0o555)
        closes = True
    try:
        if closes:
            done = run([TRAINER, "config.json", "checkpoint.dir=closed/ckpt"], {})
            check(done.returncode == 2, f"closed: exit {done.returncode}: {done.stderr}")
            check("checkpoint.dir: " in messages(done.stderr)[-1], done.stderr)
    finally:
        if as_root:
            subprocess.run(["chattr", "-i", "closed"], capture_output=True)


cases.main()
