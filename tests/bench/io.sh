#!/usr/bin/env bash
# Saves and loads of the two standard works beside fio in the same run, as one table.
#   tests/bench/io.sh DIR     DIR: a folder on the disk to measure; needs 5 GB there
# DCP_BIN says where dcp-bench is (build/bin), REPEAT how often each is measured (3): the best counts.
set -euo pipefail

source_dir=$(cd "$(dirname "$0")/../.." && pwd)
bin=${DCP_BIN:-$source_dir/build/bin}
repeat=${REPEAT:-3}
if [ $# -ne 1 ]; then
    sed -n '2,4s/^# //p' "$0" >&2
    exit 2
fi
for program in fio mpirun "$bin/dcp-bench"; do
    command -v "$program" >/dev/null || { echo "io.sh: $program is missing" >&2; exit 2; }
done
mkdir -p "$1"
scratch=$(mktemp -d "$1/io-bench-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1

# fio_gb write|read FIELD: GB/s, from fio's terse field of KiB/s.
fio_gb() {
    fio --name=io --filename="$scratch/fio" --size=2G --bs=4M --rw="$1" --direct=1 \
        --ioengine=io_uring --iodepth=8 --fallocate=posix --end_fsync=1 \
        --output-format=terse --terse-version=3 | awk -F';' -v f="$2" '{ print $f * 1024 / 1e9 }'
}

# bench RANKS OP OPTIONS...: "GB/s seconds" of the best repeat.
bench() {
    local ranks=$1 op=$2
    shift 2
    mpirun --oversubscribe -n "$ranks" "$bin/dcp-bench" "$op" "$scratch/ckpt" --repeat "$repeat" "$@" |
        sed -n 's/.*"s":\([0-9.]*\),"gb_per_s":\([0-9.]*\).*/\2 \1/p' | sort -g | tail -n 1
}

row() { # LABEL "GB/s SECONDS" FIO
    awk -v label="$1" -v result="$2" -v fio="$3" 'BEGIN {
        split(result, r, " "); printf "%-40s %6.2f %9s %8.2f\n", label, r[1], r[2], r[1] / fio }'
}

work() { # LABEL OPTIONS...
    local label=$1 result
    shift
    rm -rf "$scratch/ckpt"
    result=$(bench 4 save "$@")
    row "save  $label, 4 ranks" "${result:?save failed}" "$fio_write"
    result=$(bench 8 load "$@")
    row "load  $label, 8 ranks" "${result:?load failed}" "$fio_read"
}

fio_write=$(fio_gb write 48)
fio_read=$(fio_gb read 7)
rm -f "$scratch/fio"
printf '%-40s %6s %9s %8s\n' "" GB/s seconds "of fio"
row "fio write, 4 MiB, O_DIRECT, io_uring" "$fio_write" "$fio_write"
row "fio read" "$fio_read" "$fio_read"
work "2.28 GB in 276 tensors" --layers 10 --hidden 1024 --vocab 32000
work "0.30 GB in 10,806 tensors" --layers 400 --hidden 64 --vocab 1000
