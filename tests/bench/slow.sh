#!/usr/bin/env bash
# Measures saves if one of four ranks is much slower than the others, and checks that their reports name
# that rank. Slow is a disk of a private store (loop devices whose writes the kernel throttles to 100
# MB/s each, then one of them to 10 MB/s), or a host (a rank that may use a fiftieth of a processor).
#   tests/bench/slow.sh DIR     DIR: a folder on a disk; needs 2 GB there and root
# DCP_BIN says where the programs are (build/bin), REPEAT how often each is measured (3). Exit
# status 1 if most saves name another rank, or none.
set -euo pipefail

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"
program=${SLOW_SAVES:-$bin/../tests/bin/slow_saves}
throttle=/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device
quota=/sys/fs/cgroup/cpu/dcp-slow-$$
slow=2 missed=0 loops=()
if [ $# -ne 1 ]; then
    sed -n '2,8s/^# //p' "$0" >&2
    exit 2
fi
need mpirun losetup mkfs.ext4 "$program"
if [ "$(id -u)" != 0 ] || [ ! -w $throttle ] || [ ! -d /sys/fs/cgroup/cpu ]; then
    echo "slow.sh: skipped: needs root and the groups blkio and cpu of cgroups (version 1)" >&2
    exit 77
fi
make_scratch "$1"
memory=$(mktemp -d /dev/shm/dcp-slow-XXXXXX)

undo() {
    for i in "${!loops[@]}"; do
        echo "$(numbers "${loops[i]}") 0" >$throttle || true
        umount "$scratch/disks/$i" || true
        losetup -d "${loops[i]}" || true
    done
    if [ -d "$quota" ]; then rmdir "$quota"; fi
    rm -rf "$memory" "$scratch"
}
trap undo EXIT

numbers() { # DEVICE: prints its major and minor number
    echo $((0x$(stat -c %t "$1"))):$((0x$(stat -c %T "$1")))
}

make_disks() {
    local i loop
    for i in 0 1 2 3; do
        mkdir -p "$scratch/disks/$i"
        truncate -s 400M "$scratch/disk$i"
        loop=$(losetup -f --show "$scratch/disk$i")
        loops+=("$loop")
        mkfs.ext4 -q "$loop"
        mount "$loop" "$scratch/disks/$i"
        echo "$(numbers "$loop") 100000000" >$throttle
    done
}

saves() { # ARGUMENTS...: prints one line per save; rank $throttled gets only a small share of a processor
    # shellcheck disable=SC2016 # expanded by the inner shell
    mpirun --oversubscribe -n 4 sh -c '
        if [ "$OMPI_COMM_WORLD_RANK" = "$1" ]; then echo $$ >"$2/cgroup.procs"; fi
        shift 2; exec "$@"' - "${throttled:-none}" "$quota" "$program" "$@" $((repeat + 1)) |
        tail -n +2
}

row() { # LABEL WANTED: prints a row from the lines of the saves
    local lines median named
    lines=$(<"$scratch/lines")
    median=$(sed -E 's/.*"s":([0-9.]+).*/\1/' <<<"$lines" | sort -g |
        awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')
    named=$(sed -E 's/.*"slow_rank":([0-9a-z]+).*/\1/' <<<"$lines" | sort | uniq -c |
        sort -rn | awk 'NR == 1 { print $2 }') # the rank that most saves name
    if [ "$named" != "$2" ]; then missed=1; fi
    printf '%-46s %8s   %-6s %s\n' "$1" "${median:?$1 failed}" "$named" \
        "$(sed -nE 's/.*("slow_ratio.*)\}/\1/p' <<<"$lines" | tail -n 1)"
}

printf '%-46s %8s   %-6s\n' "4 ranks, 64 MiB each, in memory 256 MiB" "save s" named
make_disks
saves "$scratch/disks" private 64 >"$scratch/lines"
row "private store, alike disks" null
echo "$(numbers "${loops[$slow]}") 10000000" >$throttle
saves "$scratch/disks" private 64 >"$scratch/lines"
row "private store, a disk 10 times slower" $slow
mkdir "$quota"
echo 2000 >"$quota/cpu.cfs_quota_us" # of 100,000, shared by all threads of the rank
for layout in sharded global; do
    saves "$memory/$layout" $layout 256 >"$scratch/lines"
    row "$layout in memory, alike ranks" null
    throttled=$slow
    saves "$memory/$layout-slow" $layout 256 >"$scratch/lines"
    row "$layout in memory, a fiftieth of a processor" $slow
    throttled=
    rm -rf "${memory:?}"/*
done
exit $missed
