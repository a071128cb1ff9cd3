#!/usr/bin/env bash
# dcp-reshard is killed at any instant: the step is complete and intact, or does not exist. A later
# run removes the leftovers and writes the step.
. "$(dirname "$0")/tools_lib.sh"
"$DCP_BIN/dcp-bench" save "$dir/g" --layers 2 --hidden 512 --vocab 4000 >"$dir/out"
step=$(cd "$dir/g" && echo step-*)
gives 0 dcp-reshard "$dir/g" "$dir/w8" --layout sharded --world 8

# Kills at moments spread over the duration of a run.
"$DCP_PYTHON" - "$dir" "$step" <<'PY' || fail "killed"
import os, random, signal, subprocess, sys, time
dir, step = sys.argv[1:]
dst = dir + "/dst"
random.seed(1)
started = time.monotonic()
subprocess.run(["dcp-reshard", dir + "/g", dir + "/time", "--layout", "sharded", "--world", "8"],
               check=True, stdout=subprocess.DEVNULL)
whole = time.monotonic() - started
published = 0
for i in range(30):
    run = subprocess.Popen(["dcp-reshard", dir + "/g", dst, "--layout", "sharded", "--world", "8"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        run.wait(whole * random.random() * 1.1)
    except subprocess.TimeoutExpired:
        run.kill()
    message = run.stderr.read().decode()
    status = run.wait()
    assert status in (0, -signal.SIGKILL), (status, message)
    if os.path.isdir(dst + "/" + step):
        published += 1
        subprocess.run(["dcp-inspect", "verify", dst + "/" + step], check=True, stdout=subprocess.DEVNULL)
        for name in os.listdir(dir + "/w8/" + step):
            if name.endswith(".h5"):
                subprocess.run(["cmp", dir + "/w8/" + step + "/" + name, dst + "/" + step + "/" + name], check=True)
        subprocess.run(["rm", "-rf", dst + "/" + step], check=True)
    else:
        assert status != 0
print("published", published, "of 30")
PY
gives 0 dcp-reshard "$dir/g" "$dir/dst" --layout sharded --world 8
no_leftovers "$dir/dst"
gives 0 dcp-inspect verify "$dir/dst"
