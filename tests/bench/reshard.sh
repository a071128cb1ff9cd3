#!/usr/bin/env bash
# Measures dcp-reshard between world sizes and meshes beside fio, which reads and writes the same bytes
# simultaneously, in the same run; exit status 1 if a target is missed. Targets:
#     4 to 8, 8 to 4, 1 to 7, 2x2 (fsdp x tp) to 8 of 2.28 GB     0.8 of fio's bandwidth
#     memory of a process                                         256 MiB at most, an eighth of it
#     the same with --memory 128MiB                               128 MiB at most
# Runs under mpirun on one machine are for comparison: starting MPI takes more time than they save.
#   tests/bench/reshard.sh DIR     DIR: a folder on the disk to measure; needs 12 GB there
# DCP_BIN says where dcp-reshard is (build/bin), REPEAT how often each is measured (3): the best
# counts. OPTIONS ("--layers 10 --hidden 1024 --vocab 32000") are those of the dcp-bench that writes the
# checkpoint.
set -euo pipefail

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"
if [ $# -ne 1 ]; then
    sed -n '2,11s/^# //p' "$0" >&2
    exit 2
fi
need fio python3 "$bin/dcp-bench" "$bin/dcp-reshard"
make_scratch "$1"
[ -z "${OPTIONS:-}" ] || read -ra big <<<"$OPTIONS"
missed=0

drop_caches() { # writes files to the disk and drops them from the page cache
    sync
    find "$scratch" -type f -exec dd of={} oflag=nocache conv=notrunc,fdatasync count=0 status=none \;
}

# fio_both: prints the fewest seconds in which one job reads `bytes` while another one writes as
# many. They come from fio's terse fields 9 and 50, the milliseconds of reading and writing.
fio_both() {
    local mib=$((bytes / 4194304 * 4)) i
    for ((i = 0; i < repeat; i++)); do
        rm -f "$scratch/to"
        drop_caches
        fio --size="${mib}M" --bs=4M --direct=1 --ioengine=io_uring --iodepth=8 \
            --fallocate=posix --end_fsync=1 --output-format=terse --terse-version=3 \
            --name=in --filename="$scratch/from" --rw=read \
            --name=out --filename="$scratch/to" --rw=write |
            awk -F';' '{ ms = $9 > ms ? $9 : ms; ms = $50 > ms ? $50 : ms } END { print ms / 1000 }'
    done | best
}

# timed COMMAND...: prints "seconds peak"; peak is the memory of the command's largest process in
# KiB.
timed() {
    python3 - "$@" <<'PY'
import resource, subprocess, sys, time
start = time.monotonic()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print("%.3f %d" % (time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
PY
}

# reshard LABEL TARGET LIMIT_MIB SRC OPTIONS...: prints a row with the best of several runs, beside
# fio.
reshard() {
    local label=$1 target=$2 limit=$3 src=$4 i best_run s kib word=ok
    shift 4
    best_run=$(for ((i = 0; i < repeat; i++)); do
        rm -rf "$scratch/dst"
        drop_caches
        timed "${launcher[@]}" "$bin/dcp-reshard" "$scratch/$src" "$scratch/dst" --layout sharded "$@"
    done | best)
    read -r s kib <<<"${best_run:?$label failed}"
    awk -v a="$s" -v f="$fio_s" -v t="$target" -v k="$kib" -v l="$limit" \
        'BEGIN { exit !(f / a >= t && k <= l * 1024) }' || word=MISSED
    [ "$word" = ok ] || missed=1
    awk -v label="$label" -v s="$s" -v b="$bytes" -v f="$fio_s" -v t="$target" -v k="$kib" -v l="$limit" -v w="$word" \
        'BEGIN { printf "%-34s %8.3f %7.2f %7.2f %7.1f %9.0f %9d  %s\n", label, s, b / 1e9 / s, f / s, t, k / 1024, l, w }'
}

make() { # NAME SRC OPTIONS...
    local name=$1 src=$2
    shift 2
    "$bin/dcp-reshard" "$scratch/$src" "$scratch/$name" --layout sharded "$@" >/dev/null
}

launcher=()
bytes=$("$bin/dcp-bench" save "$scratch/g" --repeat 1 "${big[@]}" | sed -nE 's/.*"bytes": ?([0-9]+).*/\1/p')
fio --name=lay --filename="$scratch/from" --size=$((bytes / 4194304 * 4))M --bs=4M --rw=write --direct=1 \
    --ioengine=io_uring --iodepth=8 --end_fsync=1 --output="$scratch/fio.out"
fio_s=$(fio_both)
rm -f "$scratch/from" "$scratch/to"
printf '%-34s %8s %7s %7s %7s %9s %9s\n' "" seconds GB/s "of fio" target "MiB peak" "at most"
awk -v s="$fio_s" -v b="$bytes" 'BEGIN { printf "%-34s %8.3f %7.2f\n", "fio reads and writes at once", s, b / 1e9 / s }'
make 4 g --world 4
rm -rf "$scratch/g"
reshard "4 to 8" 0.8 256 4 --world 8
reshard "4 to 8, --memory 128MiB" 0.8 128 4 --world 8 --memory 128MiB
launcher=(mpirun --oversubscribe -n 2)
reshard "4 to 8, by mpirun -n 2" 0 256 4 --world 8
launcher=()
make 22 4 --mesh fsdp=2,tp=2
make 8 4 --world 8
rm -rf "$scratch/4"
reshard "8 to 4" 0.8 256 8 --world 4
reshard "8 to 2x2 (fsdp x tp)" 0.8 256 8 --mesh fsdp=2,tp=2
make 1 8 --world 1
rm -rf "$scratch/8"
reshard "2x2 (fsdp x tp) to 8" 0.8 256 22 --world 8
rm -rf "$scratch/22"
reshard "1 to 7" 0.8 256 1 --world 7
exit $missed
