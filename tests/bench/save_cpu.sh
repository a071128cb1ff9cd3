#!/usr/bin/env bash
# Measures the processor time of asynchronous saves: the clocks of the save's own threads, of all ranks,
# as seconds per GB. The states are one of 2.28 GB and a small model's of 29 MB per rank, with shared
# memory and with messages; exit status 1 if a median is above the target, 0.2.
#   tests/bench/save_cpu.sh DIR     DIR: a folder on a disk; needs 7 GB there
# DCP_BIN says where dcp-bench is (build/bin), REPEAT how often each is measured (5). The first save of
# each run, which writes new files, is not counted.
set -euo pipefail

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"
target=0.2
if [ $# -ne 1 ]; then
    sed -n '2,7s/^# //p' "$0" >&2
    exit 2
fi
need mpirun "$bin/dcp-bench"
make_scratch "$1"
repeat=${REPEAT:-5}
missed=0

per_gb() { # RANKS OPTIONS...: prints the seconds per GB of each save except the first
    local ranks=$1
    shift
    rm -rf "$scratch/ckpt"
    mpirun --oversubscribe -n "$ranks" "$bin/dcp-bench" async "$scratch/ckpt" \
        --repeat $((repeat + 1)) "$@" | tail -n +2 |
        sed -nE 's/.*"bytes": ?([0-9]+),.*"processor_s": ?([0-9.]+).*/\1 \2/p' |
        awk '{ print $2 / ($1 / 1e9) }'
}

row() { # LABEL RANKS OPTIONS...
    local label=$1 ranks=$2 shared values median word
    shift 2
    for shared in 1 0; do
        values=$(DCP_SHARED_MEMORY=$shared per_gb "$ranks" "$@" | sort -g)
        median=$(awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }' <<<"$values")
        word=ok
        if awk -v v="${median:?$label failed}" -v t=$target 'BEGIN { exit !(v > t) }'; then
            word=MISSED
            missed=1
        fi
        printf '%-34s %-8s %7.3f %7.3f %7s  %s\n' "$label" \
            "$([ $shared = 1 ] && echo memory || echo messages)" "$median" \
            "$(tail -n 1 <<<"$values")" $target $word
    done
}

printf '%-34s %-8s %7s %7s %7s\n' "processor seconds a GB" by median most target
row "2.28 GB in 276 tensors, 4 ranks" 4 "${big[@]}"
row "2.28 GB in 276 tensors, 2 ranks" 2 "${big[@]}"
row "29 MB a rank, 141 tensors, 2 ranks" 2 --layers 5 --hidden 256 --vocab 256
exit $missed
