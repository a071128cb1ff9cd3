#!/usr/bin/env bash
# A small but complete demonstration: trains on 4 ranks, loses one to SIGKILL, continues with 8, compares
# with an undisturbed run, exports, reads the export back, and samples from the trained model.
#   examples/quickstart.sh [TEXT]     TEXT: a file or folder to learn from (default: the C headers)
# Results go to build/quickstart and replace those of an earlier quickstart.
set -euo pipefail
case "${1:-}" in
--help | -h) sed -n '2,5s/^# *//p' "${BASH_SOURCE[0]}" && exit 0 ;;
-*) echo "quickstart: unknown option $1; try --help" >&2 && exit 2 ;;
esac
[ $# -le 1 ] || { echo "quickstart: $# arguments, one at most; try --help" >&2 && exit 2; }
least=4096 # bytes of text; a sample has 129
find_text() { # PATH
    text=$(realpath -e -- "$1") || exit 2
    local bytes
    bytes=$(find -L "$text" -type f -printf '%s\n' 2>/dev/null | awk '{n += $1} END {print n + 0}') || true
    [ "$bytes" -ge $least ] && return
    echo "quickstart: $text holds $bytes bytes of text; at least $least are needed" >&2
    exit 2
}
[ $# -eq 0 ] || find_text "$1"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cmake/setup.sh
[ $# -gt 0 ] || { find_text /usr/include && text='/usr/include/*.h'; } # setup.sh installs them
. cmake/mpi-env.sh

python= # the first interpreter that can read the export back
for candidate in python3 /usr/bin/python3; do
    [ "$python" ] || ! "$candidate" -c 'import h5py, numpy' 2>/dev/null || python=$candidate
done
[ "$python" ] || { echo "quickstart: python3 has no h5py and numpy (Debian: python3-h5py)" >&2 && exit 2; }

say() { printf '\n== %s\n' "$*"; }
give_up() {
    echo "quickstart: $1; the log is $2:" >&2
    tail -n 20 "$2" >&2
    exit 3
}

# follow LOG PID: shows the lines about steps of a run in the background
follow() {
    tail --pid="$2" -s 0.2 -n +1 -F "$1" 2>/dev/null | while read -r word step _ loss _; do
        [ "$word" != step ] || echo "  step $step, loss $loss"
    done
}

work=build/quickstart
mkdir -p build
[ ! -e "$work" ] || printf 'Replacing the results of an earlier quickstart in %s\n' "$work"
rm -rf "$work" && mkdir "$work"
say "Building the programs into build/ (a minute the first time, nothing the second)"
cmake/programs.sh "$work/build.log"
export PATH="$PWD/build/bin:$PATH"

train=(dcp-train examples/configs/quickstart.json "data.path=$text" log_every=5)
run= # dcp-run's pid while it is in the background
# No rank outlives this script: at the first signal the ranks save and end; at the second they end at once.
end_run() {
    [ -n "$run" ] || return 0
    trap 'kill "$run" 2>/dev/null || true' INT TERM
    echo "quickstart: waiting for the ranks to end" >&2
    kill "$run" 2>/dev/null || return 0
    while kill -0 "$run" 2>/dev/null; do wait "$run" || true; done
}
trap end_run EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

kill_at=10
say "Training on 4 ranks, saving at every step; at step $kill_at one rank will be killed"
dcp-run -n 4 --restart-ranks 8 -- "${train[@]}" \
    "checkpoint.dir=$work/killed" >"$work/killed.log" 2>&1 &
run=$!
follow "$work/killed.log" $run &
follower=$!
until [ -d "$work/killed/step-$(printf %08d $kill_at)" ]; do
    kill -0 $run 2>/dev/null || { run= && give_up "training ended early" "$work/killed.log"; }
    sleep 0.02
done
victim=$(sed -n 's/^dcp-run: start 1, .* pids \([0-9]*\) \([0-9]*\) .*/\2/p' "$work/killed.log")
kill -KILL "$victim"
echo "step $kill_at is on disk: killed rank 1 (pid $victim) with SIGKILL"
wait $run || { run= && give_up "training failed" "$work/killed.log"; }
run=
wait $follower || true
echo "what dcp-run did about it:"
sed -n 's/^dcp-run: /  /p' "$work/killed.log"

say "The same training on 4 ranks, undisturbed"
dcp-run -n 4 -- "${train[@]}" "checkpoint.dir=$work/whole" \
    >"$work/whole.log" 2>&1 &
run=$!
follow "$work/whole.log" $run &
follower=$!
wait $run || { run= && give_up "training failed" "$work/whole.log"; }
run=
wait $follower || true

say "What the model learned, and whether the kill left a trace"
"$python" - "$work/killed/metrics.jsonl" "$work/whole/metrics.jsonl" <<'PYTHON'
import json, sys
killed, whole = ([json.loads(line) for line in open(path)] for path in sys.argv[1:])
means = [sum(a["loss"] for a in killed[i:i + 5]) / 5 for i in range(0, len(killed), 5)]
for i, mean in enumerate(means):
    print(f"steps {5 * i + 1:2} to {5 * i + 5:2}  mean loss {mean:.3f}  " + "#" * round(mean * 10))
same = [(a["step"], a["loss"], a["grad_norm"]) for a in killed] == \
       [(b["step"], b["loss"], b["grad_norm"]) for b in whole]
if not same or means[-1] > means[0] - 1:
    sys.exit("the runs' losses differ" if not same else "the model learned nothing")
print(f"losses and gradient norms of all {len(killed)} steps are equal in both runs, to the last digit")
PYTHON
last=$(basename "$(ls -d "$work"/whole/step-* | tail -n 1)")
cmp "$work/killed/$last/state.h5" "$work/whole/$last/state.h5"
echo "cmp: state.h5 of $last ($(stat -c %s "$work/whole/$last/state.h5") bytes) is the same file in both runs"
echo "dcp-inspect verify, every byte against its checksum:"
dcp-inspect verify "$work/killed/$last" | sed "s|$PWD/||"

say "Exporting for other software, and reading that back without this project's code"
dcp-export "$work/killed" "$work/export"
echo "numpy on the exported model.safetensors, h5py on the checkpoint's state.h5:"
"$python" examples/compare_export.py "$work/export" "$work/killed/$last/state.h5"
echo "$work/export is a Hugging Face folder:" $(ls "$work/export")

begun='#include <std'
[ "$text" = '/usr/include/*.h' ] || begun='The '
say "How the model continues $begun: 30 steps have taught it letters and spaces, hardly words"
printf '%s' "$begun"
dcp-train --sample "$begun" --tokens 100 --temperature 0.8 "$work/killed"

say "Done. Checkpoints, logs, metrics and the export are in $work; the programs are in build/bin"
