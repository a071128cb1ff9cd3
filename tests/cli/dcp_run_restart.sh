#!/usr/bin/env bash
# A rank is killed: dcp-run restarts on the given numbers of ranks, of which the last one repeats,
# and no process of the start before is left by then. This also holds if mpirun is killed, and if it
# is stopped.
. "$(dirname "$0")/dcp_run_lib.sh"

run -n 3 --restart-ranks 4,2 -- "$DCP_RUN_RANK" "$dir"
until_true started 1
until_true up 1
first=($(pids 1))
[ ${#first[@]} -eq 3 ] || fail "start 1 has ${#first[@]} ranks"
kill -KILL "${first[1]}"

until_true started 2
gone "${first[@]}" || fail "a rank of start 1 lives on"
says "start 1 failed with status 137 (Killed); rank 1, pid ${first[1]}, ended first"
says "restart 1 of 3, on 4 ranks"
second=($(pids 2))
[ ${#second[@]} -eq 4 ] || fail "start 2 has ${#second[@]} ranks"
until_true up 2
kill -KILL "$(awk '/^PPid:/ {print $2}' "/proc/${second[0]}/status")" # mpirun

until_true started 3
gone "${second[@]}" || fail "a rank of start 2 lives on"
third=($(pids 3))
[ ${#third[@]} -eq 2 ] || fail "start 3 has ${#third[@]} ranks"
until_true up 3
# These processes are stopped, so they would not notice that a rank has ended.
mpirun=$(awk '/^PPid:/ {print $2}' "/proc/${third[0]}/status")
kill -STOP "$mpirun" "$(awk '/^PPid:/ {print $2}' "/proc/$mpirun/status")"
kill -KILL "${third[0]}"

until_true started 4
[ "$(pids 4 | wc -w)" -eq 2 ] || fail "start 4 does not repeat the last number of ranks"
echo 0 >"$dir/exit"
ends 0
