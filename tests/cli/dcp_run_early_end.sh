#!/usr/bin/env bash
# Ranks that end at once do not delay the line of the start. If ranks are done, processes that they
# leave running with their output open do not make the job fail.
. "$(dirname "$0")/dcp_run_lib.sh"

# All ranks except rank 0 end too soon for dcp-run to see all of them; rank 0 stays until the line
# is printed.
run -n 6 -- sh -c '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exit 0
                   echo $$ >"$1/rank0"; until [ -e "$1/end" ]; do sleep 0.02; done' sh "$dir"
until_true started 1
until_true test -s "$dir/rank0"
pids 1 | grep -qw "$(cat "$dir/rank0")" || fail "the living rank is not in the line: $(pids 1)"
# After that dcp-run sleeps; if it checked /proc every few ms, it would wake up hundreds of times.
wakeups() { awk '/^voluntary_ctxt/ {print $2}' "/proc/$run/status"; }
before=$(wakeups)
sleep 1
[ $(($(wakeups) - before)) -lt 50 ] || fail "$(($(wakeups) - before)) wake-ups in a second"
touch "$dir/end"
ends 0
[ "$(grep -c '^dcp-run: start [0-9]*, ' "$dir/err")" -eq 1 ] || fail "more than one start's line"

# Both ranks are done; processes that they left running keep their output open for a long time.
run -n 2 -- sh -c '(sh -c "echo \$\$ >>$1/left; sleep 1000; :" &); exit 0' sh "$dir"
ends 0
says 'killing what the ranks of start 1 left running'
says_not 'start 2'
says_not 'failed'
gone $(cat "$dir/left") || fail "what the ranks left running lives on"
