#!/usr/bin/env bash
# Measures saves and loads of the two standard works beside fio in the same run, and prints one table;
# exit status 1 if a target is missed. Targets, as shares of fio's O_DIRECT bandwidth:
#     save 2.28 GB in 276 tensors, 4 ranks          0.9     load on 8 ranks    0.9
#     save 0.30 GB in 10,806 tensors, 4 ranks       0.35 the first time, 0.6 again
#     load on 8 ranks                               0.6
#     an asynchronous save of 2.28 GB returns       in 5 ms
#   tests/bench/io.sh DIR     DIR: a folder on the disk to measure; needs 5 GB there
# DCP_BIN says where dcp-bench is (build/bin), REPEAT how often each is measured (3): the best counts.
set -euo pipefail

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"
if [ $# -ne 1 ]; then
    sed -n '2,9s/^# //p' "$0" >&2
    exit 2
fi
need fio mpirun "$bin/dcp-bench"
make_scratch "$1"
missed=0

verdict() { # VALUE at-least|at-most TARGET
    if awk -v v="$1" -v how="$2" -v t="$3" 'BEGIN { exit !(how == "at-least" ? v >= t : v <= t) }'; then
        echo ok
    else
        echo MISSED
    fi
}

row() { # LABEL FIGURES FIO TARGET
    local label=$1 s gb share word
    read -r s gb _ <<<"$2"
    share=$(awk -v a="${gb:?$label failed}" -v b="$3" 'BEGIN { print a / b }')
    word=$(verdict "$share" at-least "$4")
    [ "$word" = ok ] || missed=1
    printf '%-42s %9.3f %6.2f %7.2f %7s  %s\n' "$label" "$s" "$gb" "$share" "$4" "$word"
}

first_saves() { # OPTIONS...: each by processes and a store that have not saved before
    local i
    for ((i = 0; i < repeat; i++)); do
        rm -rf "$scratch/ckpt"
        ours 4 save 1 "$@"
    done
}

fio_write=$(fio_gb write)
fio_read=$(fio_gb read)
rm -f "$scratch/fio"
printf '%-42s %9s %6s %7s %7s\n' "" seconds GB/s "of fio" target
printf '%-42s %9s %6.2f\n' "fio write, 4 MiB, O_DIRECT, io_uring" "" "$fio_write" "fio read" "" "$fio_read"

row "save 2.28 GB in 276 tensors, 4 ranks" "$(ours 4 save "$repeat" "${big[@]}" | best)" "$fio_write" 0.9
row "load it, 8 ranks" "$(ours 8 load "$repeat" "${big[@]}" | best)" "$fio_read" 0.9
stall=$(ours 4 async "$repeat" "${big[@]}" | awk '{ print $3 * 1000 }' | best)
word=$(verdict "${stall:?async failed}" at-most 5)
[ "$word" = ok ] || missed=1
printf '%-42s %6.2f ms %14s %7s  %s\n' "save it beside: the call returns after" "$stall" "" "5 ms" "$word"

row "save 0.30 GB in 10,806 tensors, 4 ranks" "$(first_saves "${small[@]}" | best)" "$fio_write" 0.35
row "save it again" "$(ours 4 save $((repeat + 1)) "${small[@]}" | tail -n +2 | best)" "$fio_write" 0.6
row "load it, 8 ranks" "$(ours 8 load "$repeat" "${small[@]}" | best)" "$fio_read" 0.6
exit $missed
