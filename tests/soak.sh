#!/usr/bin/env bash
# tests/soak.sh [--hosts] MINUTES [SEED [DIR]]: trains small models under dcp-run for MINUTES while ranks,
# mpirun and dcp-run are killed and stopped, disks fill up or fail, and bytes flip. Then compares the
# results with those of an undisturbed run, and looks for leftovers. SEED determines the faults, their
# order and their targets; the moment when a fault hits depends on the machine. The seed is printed, and
# a summary at the end. DIR, which must not exist, gets logs and files of a run that failed.
# --hosts: on three hosts, which are namespaces (as root); hosts and links are lost as well.
# Everything runs in its own namespaces and in memory, so nothing is left however it ends.
# Exit: 0 no failure; 1 a failure; 2 wrong usage; 77 namespaces are not available.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if [ "${1-}" = inside ]; then # process 1 of the namespaces; bash reaps orphans
    shift
    mount -t tmpfs -o size=400m none "$SOAK_FOLDER"
    mount -t tmpfs -o size=200m none /dev/shm
    status=0
    python3 "$here/soak/soak.py" "$@" || status=$?
    exit $status
fi

hosts=
[ "${1-}" != --hosts ] || { hosts=yes; shift; }
if ! [[ ${1-} =~ ^[0-9]+(\.[0-9]+)?$ && ${2-1} =~ ^[0-9]+$ && $# -le 3 ]] || [ -e "${3-}" ]; then
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
    exit 2
fi
. "$here/../cmake/mpi-env.sh"
export DCP_SOURCE=${DCP_SOURCE:-$(dirname "$here")}
export DCP_BIN=${DCP_BIN:-$DCP_SOURCE/build/bin}
export CRASH_INJECT=${CRASH_INJECT:-$DCP_SOURCE/build/tests/bin/crash_inject.so}
[ -e "$CRASH_INJECT" ] && [ -e "$DCP_BIN/dcp-run" ] || {
    echo "soak.sh: build the targets programs and crash_inject first" >&2
    exit 2
}
seed=${2-$((RANDOM * 32768 + RANDOM))}
if [ "$hosts" ]; then
    # As in the test suite, ranks share few cores.
    export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
    exec python3 "$here/soak/soak_hosts.py" "$1" "$seed"
fi
spaces=(-m -p -i -f --mount-proc --kill-child)
[ "$(id -u)" -eq 0 ] || spaces+=(-r)
unshare "${spaces[@]}" mount -t tmpfs none /dev/shm 2>/dev/null || { echo "no namespaces here"; exit 77; }
SOAK_FOLDER=$(mktemp -d "${TMPDIR:-/tmp}/dcp_soak.XXXXXX")
export SOAK_FOLDER
trap 'rmdir "$SOAK_FOLDER"' EXIT
[ -z "${3-}" ] || mkdir "$3"
unshare "${spaces[@]}" "$here/soak.sh" inside "$1" "$seed" ${3:+"$(realpath "$3")"}
