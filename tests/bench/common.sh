# shellcheck shell=bash disable=SC2034 # its variables are for the scripts beside it
# Shared by the benchmarks in this folder: the scratch folder, fio, and dcp-bench's figures.
# DCP_BIN says where dcp-bench is (build/bin), REPEAT how often each case is measured (3).

case ${1-} in
--help | -h) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0" && exit 0 ;;
"" | -[!-]*) echo "${0##*/}: names no DIR; --help tells more" >&2 && exit 2 ;;
esac

big=(--layers 10 --hidden 1024 --vocab 32000) # 2.28 GB in 276 tensors
small=(--layers 400 --hidden 64 --vocab 1000) # 0.30 GB in 10,806 tensors
bin=${DCP_BIN:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/build/bin}
repeat=${REPEAT:-3}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1

need() { # PROGRAM...
    local program
    for program; do
        command -v "$program" >/dev/null || { echo "${0##*/}: $program is missing" >&2; exit 2; }
    done
}

make_scratch() { # DIR: makes a scratch folder in DIR that is removed at the end
    mkdir -p "$1"
    scratch=$(mktemp -d "$1/bench-XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
}

# fio_gb write|read: prints GB/s, computed from fio's terse field in KiB/s.
fio_gb() {
    local field=7
    [ "$1" = read ] || field=48
    fio --name=io --filename="$scratch/fio" --size=2G --bs=4M --rw="$1" --direct=1 \
        --ioengine=io_uring --iodepth=8 --fallocate=posix --end_fsync=1 \
        --output-format=terse --terse-version=3 | awk -F';' -v f="$field" '{ print $f * 1024 / 1e9 }'
}

# figures: converts JSON objects, one per line, to lines of "seconds GB/s stall".
figures() {
    sed -nE 's/.*"s": ?([0-9.]+),.*"gb_per_s": ?([0-9.]+),.*"stall_s": ?([0-9.]+).*/\1 \2 \3/p'
}

# ours RANKS OP REPEAT OPTIONS...: prints the figures of dcp-bench in $scratch/ckpt.
ours() {
    local ranks=$1 op=$2 times=$3
    shift 3
    mpirun --oversubscribe -n "$ranks" "$bin/dcp-bench" "$op" "$scratch/ckpt" --repeat "$times" "$@" |
        figures
}

best() { sort -g | head -n 1; } # the figures with the fewest seconds
