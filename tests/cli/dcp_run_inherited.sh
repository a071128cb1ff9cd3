#!/usr/bin/env bash
# Child processes that dcp-run had before it became dcp-run do not belong to its job: they outlive a
# start that failed, a start whose guard was killed, and dcp-run.
. "$(dirname "$0")/dcp_run_lib.sh"

trap 'kill "$(cat "$dir/sleeper")" 2>/dev/null || true; rm -rf "$dir"' EXIT
parent_of() { awk '/^PPid:/ {print $2}' "/proc/$1/status"; }

bash -c 'sleep 1000 >/dev/null 2>&1 & echo $! >"$1/sleeper"
         exec > >(echo $BASHPID >"$1/tee"; exec tee "$1/log") 2>&1
         shift; exec "$@"' bash "$dir" "$DCP_BIN/dcp-run" -n 2 --max-restarts 2 -- \
    sh -c '[ "$OMPI_COMM_WORLD_RANK" != 0 ] || echo $PPID >"$1/mpirun"
           until [ -e "$1/go" ]; do sleep 0.02; done; echo "rank says"; exit 3' sh "$dir" >/dev/null &
run=$!
ln -sf log "$dir/err"
until_true started 1
until_true test -s "$dir/mpirun"
kill -KILL "$(parent_of "$(cat "$dir/mpirun")")" # the guard
until_true started 2
touch "$dir/go"
ends 3
until_true gone "$(cat "$dir/tee")"
says 'giving up after 2 restarts'
says 'rank says'
sleeper=$(cat "$dir/sleeper")
! gone "$sleeper" || fail "a child that dcp-run had before is killed"
