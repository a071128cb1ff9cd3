#!/usr/bin/env bash
# A small demonstration of PyTorch with libdcp: trains with FSDP2 on handwritten digits, under torchrun and under Ray
# Train. Kills a worker, continues, even on fewer workers, and proves the state from which it continues.
#   examples/pytorch/quickstart.sh [DIR]
# Makes an environment with torch and ray in DIR (some gigabytes; default: build/pytorch), and writes its results there,
# where they replace those of an earlier quickstart. PYTHON: the interpreter to use (default: python3, 3.11 or later).
set -euo pipefail
if [ $# -gt 1 ] || [[ ${1:-} == -* ]]; then
    sed -n '2,6s/^# //p' "$0" >&2
    exit 2
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
dir=${1:-$root/build/pytorch}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
environment=$dir/environment work=$dir/work
unset LIBDCP_LIBRARY PYTHONPATH
export OMP_NUM_THREADS=1 RAY_DEDUP_LOGS=0
# Otherwise workers that torchrun restarts would find the addresses of dead ones in the store that they share with it.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1

say() { printf '\n== %s\n' "$*"; }

# run LOG COMMAND...: shows the lines about steps, and the end of the log if the command fails
run() {
    local log=$work/$1.log status=0
    shift
    "$@" >"$log" 2>&1 || status=$?
    # Ray prefixes lines with the worker, and prints them twice. Shows every fifth step, and the first after a restart.
    sed -nE 's/\x1b\[[0-9;]*m//g; s/^\(RayTrainWorker[^)]*\) //; /^(step|[0-9]+ workers) /p' "$log" |
        awk '$0 in seen {next} /^[0-9]/ {delete seen} {seen[$0]}
             !/ loss / || $2 % 5 == 0 || went_on {print "  " $0} {went_on = /^[0-9]/}'
    if [ $status -ne 0 ]; then
        echo "quickstart: that failed; the end of $log:" >&2
        tail -n 30 "$log" >&2
        exit 3
    fi
}
same() { # same A B: checks that two checkpoints of a step are identical files
    cmp "$work/$1/state.h5" "$work/$2/state.h5"
    echo "  cmp: $1 and $2 are the same file, $(stat -c %s "$work/$1/state.h5") bytes"
}
train() { run "$1" "$environment/bin/torchrun" --nproc-per-node "$2" --max-restarts 3 "$here/train.py" "${@:3}"; }
ray() { run "$1" "$environment/bin/python" "$here/train_ray.py" --workers "$2" "${@:3}"; }

say "Making an environment in $environment (minutes the first time)"
[ -x "$environment/bin/python" ] || "${PYTHON:-python3}" -m venv "$environment"
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check numpy torch scikit-learn 'ray[train]' \
    "$root/libdcp/python"
"$environment/bin/python" -c 'import libdcp, ray, torch
print(f"libdcp {libdcp.__version__}, torch {torch.__version__}, ray {ray.__version__}")'
rm -rf "$work"
mkdir "$work"

say "torchrun: 45 steps on 4 workers, undisturbed, with a save beside every fifth"
train whole 4 "$work/whole" --steps 45

say "torchrun: the same, but worker 3 is killed by SIGKILL after step 13; torchrun starts them all again"
train killed 4 "$work/killed" --steps 30 --kill-at 13
same whole/step-00000030 killed/step-00000030

say "That step loaded on 2 workers, proven, and saved again from them"
run proof "$environment/bin/torchrun" --nproc-per-node 2 "$here/prove.py" "$work/killed" "$work/again"
same killed/step-00000030 again/step-00000030

say "torchrun: on from there on 3 workers, with the same samples"
train fewer 3 "$work/killed" --steps 45

say "Ray Train: 4 workers, one killed after step 13; Ray starts them all again"
ray ray 4 "$work/ray" --steps 30 --kill-at 13
same killed/step-00000030 ray/step-00000030

say "Ray Train: on from there on 2 workers"
ray ray-fewer 2 "$work/ray" --steps 45

say "What the switch from torch.distributed.checkpoint takes"
diff -u --label checkpoint_dcp.py --label checkpoint_libdcp.py "$here/checkpoint_dcp.py" "$here/checkpoint_libdcp.py" |
    grep -v '^@@' || true

say "Whether the losses are those of the undisturbed training"
"$environment/bin/python" - "$work" <<'PYTHON'
import re, sys

def losses(*logs):
    found = {}
    for log in logs:
        for step, loss in re.findall(r"step +(\d+)  loss ([\d.]+)", open(f"{sys.argv[1]}/{log}.log").read()):
            found[int(step)] = float(loss)
    return found

whole = losses("whole")
for what, logs in ("torchrun", ("killed", "fewer")), ("Ray Train", ("ray", "ray-fewer")):
    other = losses(*logs)
    assert sorted(other) == list(range(1, 46)), sorted(other)
    apart = [abs(other[step] - whole[step]) for step in range(1, 46)]
    print(f"  {what}: steps 1 to 30, on 4 workers: at most {max(apart[:30]):.6f} apart; "
          f"31 to 45, on fewer: at most {max(apart[30:]):.6f}")
    if max(apart[:30]) or max(apart[30:]) > 0.01:
        sys.exit("the losses differ")
PYTHON
say "Done: through kills and on 4, 3 and 2 workers, every training went on from the proven state where it was," \
    "and step 30 is one file, whether torchrun or Ray Train ran it, and from 4 or 2 workers. All is in $work"
