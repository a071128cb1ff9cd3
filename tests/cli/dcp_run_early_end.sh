#!/usr/bin/env bash
# Ranks that end at once do not hold back the start's line, and processes that ranks leave running
# with their output open make no failure of a job that is done.
. "$(dirname "$0")/dcp_run_lib.sh"

# All but rank 0 end too soon to be seen all; rank 0 stays until the line was there.
run -n 6 -- sh -c '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exit 0
                   echo $$ >"$1/rank0"; until [ -e "$1/end" ]; do sleep 0.02; done' sh "$dir"
until_true started 1
until_true test -s "$dir/rank0"
pids 1 | grep -qw "$(cat "$dir/rank0")" || fail "the living rank is not in the line: $(pids 1)"
# From then on dcp-run sleeps: a look at /proc every few ms would be hundreds of wake-ups.
wakeups() { awk '/^voluntary_ctxt/ {print $2}' "/proc/$run/status"; }
before=$(wakeups)
sleep 1
[ $(($(wakeups) - before)) -lt 50 ] || fail "$(($(wakeups) - before)) wake-ups in a second"
touch "$dir/end"
ends 0
[ "$(grep -c '^dcp-run: start [0-9]*, ' "$dir/err")" -eq 1 ] || fail "more than one start's line"

# Both ranks are done; what they left running would hold their output for long.
run -n 2 -- sh -c '(sh -c "echo \$\$ >>$1/left; sleep 1000; :" &); exit 0' sh "$dir"
ends 0
says 'killing what the ranks of start 1 left running'
says_not 'start 2'
says_not 'failed'
gone $(cat "$dir/left") || fail "what the ranks left running lives on"
