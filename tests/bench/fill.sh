#!/usr/bin/env bash
# Copies steps from a store in memory to one on a disk, in turns with fio's sequential writes; prints
# the medians of both, and their ratio. Exit status 1 if the ratio is below the target, 0.9.
#   tests/bench/fill.sh DIR     DIR: a folder on the disk to measure; needs 5 GB there, and 2 GB in
#                               /dev/shm or MEMORY
# BENCH_FILL says where the program is (build/tests/bin/bench_fill), RANKS on how many ranks it runs
# (2), REPEAT how often each is measured (5).
set -euo pipefail

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"
target=0.9
if [ $# -ne 1 ]; then
    sed -n '2,7s/^# //p' "$0" >&2
    exit 2
fi
fill=${BENCH_FILL:-$(dirname "$bin")/tests/bin/bench_fill}
need fio mpirun "$fill"
repeat=${REPEAT:-5}
make_scratch "$1"
memory=$(mktemp -d "${MEMORY:-/dev/shm}/bench-XXXXXX")
trap 'rm -rf "$scratch" "$memory"' EXIT

fill_gb() {
    rm -rf "$memory/store" "$scratch/store"
    sync -f "$scratch"
    mpirun --oversubscribe -n "${RANKS:-2}" "$fill" "$memory/store" "$scratch/store" 2048
    rm -rf "$memory/store" "$scratch/store"
}

median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

printf '%-10s %10s %10s\n' GB/s filling fio
for ((i = 0; i < repeat; i++)); do
    rm -f "$scratch/fio"
    disk=$(fio_gb write)
    rm -f "$scratch/fio"
    filling=$(fill_gb)
    printf '%-10s %10.2f %10.2f\n' "" "$filling" "$disk"
    echo "$filling" >>"$scratch/fillings"
    echo "$disk" >>"$scratch/disk"
done
filling=$(median <"$scratch/fillings")
disk=$(median <"$scratch/disk")
ratio=$(awk -v a="$filling" -v b="$disk" 'BEGIN { print a / b }')
printf '%-10s %10.2f %10.2f   ratio %.2f (at least %s)\n' median "$filling" "$disk" "$ratio" $target
awk -v r="$ratio" -v t=$target 'BEGIN { exit !(r >= t) }'
