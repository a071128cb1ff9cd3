#!/usr/bin/env bash
# dcp-run itself is killed: no rank lives on, not even one that ignores SIGTERM.
. "$(dirname "$0")/dcp_run_lib.sh"

run -n 3 -- "$DCP_RUN_RANK" "$dir" stubborn
until_true started 1
until_true up 1
ranks=($(pids 1))
mpirun=$(awk '/^PPid:/ {print $2}' "/proc/${ranks[0]}/status")
kill -KILL $run
until_true gone "$mpirun" "${ranks[@]}"
