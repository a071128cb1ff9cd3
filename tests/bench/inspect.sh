#!/usr/bin/env bash
# Measures dcp-inspect's speed and prints one table; exit status 1 if a target is missed. Targets:
#     verify 2.28 GB from a cold cache               0.85 of fio's O_DIRECT read
#     diff of two equal checkpoints of that size     0.2 s, warm
#     ls of 1,000 steps                              0.2 s, warm
#   tests/bench/inspect.sh DIR     DIR: a folder on the disk to measure; needs 7 GB there
# DCP_BIN says where the programs are (build/bin), REPEAT how often each is measured (3): the best time
# counts. For a trial, WORK (options of dcp-bench) and STEPS make the work smaller.
set -euo pipefail

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"
if [ $# -ne 1 ]; then
    sed -n '2,8s/^# //p' "$0" >&2
    exit 2
fi
need fio mpirun "$bin/dcp-bench" "$bin/dcp-inspect"
make_scratch "$1"
steps=${STEPS:-1000}
read -ra work <<<"${WORK:-${big[*]}}"
missed=0

# seconds BEFORE COMMAND...: prints the time of the fastest run. Each run comes after BEFORE, and
# must succeed.
seconds() {
    local i start end before=$1
    shift
    for ((i = 0; i < repeat; i++)); do
        $before
        start=$(date +%s.%N)
        "$@" >/dev/null || { echo "failed: $*" >&2; exit 3; }
        end=$(date +%s.%N)
        awk -v a="$start" -v b="$end" 'BEGIN { printf "%.3f\n", b - a }'
    done | best
}

drop_cache() { # drops the files of the first run's step from the page cache
    local file
    for file in "$a"/*; do dd of="$file" oflag=nocache conv=notrunc,fdatasync count=0 status=none; done
}

timed() { # LABEL SECONDS TARGET
    local word=ok
    awk -v v="$2" -v t="$3" 'BEGIN { exit !(v <= t) }' || { word=MISSED missed=1; }
    printf '%-42s %9.3f %6s %7s %7s  %s\n' "$1" "$2" "" "" "$3 s" "$word"
}

# Steps of one state by two runs, so their files share no bytes on the disk.
for run in a b; do
    mpirun --oversubscribe -n 2 "$bin/dcp-bench" save "$scratch/$run" --repeat 1 "${work[@]}" >/dev/null
done
a=$(find "$scratch/a" -name 'step-*' | head -n 1) b=$(find "$scratch/b" -name 'step-*' | head -n 1)
cmp "$a/state.h5" "$b/state.h5"
bytes=$(stat -c %s "$a/state.h5")
fio_read=$(fio_gb read)
rm -f "$scratch/fio"

printf '%-42s %9s %6s %7s %7s\n' "" seconds GB/s "of fio" target
printf '%-42s %9s %6.2f\n' "fio read, 4 MiB, O_DIRECT, io_uring" "" "$fio_read"
verify=$(seconds drop_cache "$bin/dcp-inspect" verify "$a")
gb=$(awk -v b="$bytes" -v s="$verify" 'BEGIN { print b / s / 1e9 }')
share=$(awk -v a="$gb" -v b="$fio_read" 'BEGIN { print a / b }')
word=ok
awk -v v="$share" 'BEGIN { exit !(v >= 0.85) }' || { word=MISSED missed=1; }
printf '%-42s %9.3f %6.2f %7.2f %7s  %s\n' \
    "verify $(awk -v b="$bytes" 'BEGIN { printf "%.2f", b / 1e9 }') GB, cold" "$verify" "$gb" "$share" 0.85 "$word"

"$bin/dcp-inspect" diff "$a" "$b" >/dev/null # warms the cache
timed "diff of two such, which are equal" "$(seconds true "$bin/dcp-inspect" diff "$a" "$b")" 0.2

# ls reads no tables, so small steps suffice; dcp-bench keeps only its last step, so each one is
# copied.
mkdir "$scratch/many"
for ((i = 1; i <= steps; i++)); do
    "$bin/dcp-bench" save "$scratch/one" --repeat 1 --layers 1 --hidden 8 --vocab 10 >/dev/null
    cp -r "$scratch"/one/step-* "$scratch/many"
done
"$bin/dcp-inspect" ls "$scratch/many" >"$scratch/listed"
[ "$(grep -c ' complete ' "$scratch/listed")" -eq "$steps" ]
timed "ls of $steps steps" "$(seconds true "$bin/dcp-inspect" ls "$scratch/many")" 0.2
exit $missed
