#!/usr/bin/env bash
# SIGTERM and SIGINT reach every rank, which may take its time to end; after --grace dcp-run sends
# SIGKILL. SIGUSR1 is passed on to the ranks that it does not kill.
. "$(dirname "$0")/dcp_run_lib.sh"

for signal in TERM INT; do
    rm -f "$dir"/up.* "$dir"/usr1.*
    : >"$dir/err" # an earlier dcp-run's messages must not count as this one's
    # A shell lets background commands ignore SIGINT, so this requests the default action.
    run_default=(env --default-signal=INT "$DCP_BIN/dcp-run")
    "${run_default[@]}" -n 3 -- "$DCP_RUN_RANK" "$dir" 2>"$dir/err" &
    run=$!
    until_true started 1
    until_true up 1
    kill -USR1 $run
    until_true test -e "$dir/usr1.0" -a -e "$dir/usr1.1" -a -e "$dir/usr1.2"
    ranks=($(pids 1)) # mpirun must not end the ranks if a service manager signals all processes
    kill -TERM "$(awk '/^PPid:/ {print $2}' "/proc/${ranks[0]}/status")"
    kill -$signal $run
    ends 143
    gone $(pids 1) || fail "a rank outlived SIG$signal"
    says_not "start 2"
done

rm -f "$dir"/up.*
run -n 2 --grace 0.2 -- "$DCP_RUN_RANK" "$dir" stubborn
until_true started 1
until_true up 1
kill -TERM $run
ends 3
gone $(pids 1) || fail "a stubborn rank lives on"
says "killing what is left of start 1"
says_not "start 2"

# A program that does not handle SIGUSR1, which requests a save, does not die of it.
run -n 2 -- sleep 1000
until_true started 1
kill -USR1 $run
kill -TERM $run
ends 143

# The run goes on if nobody reads its output any more.
rm -f "$dir"/up.* "$dir/exit"
: >"$dir/err"
("$DCP_BIN/dcp-run" -n 1 -- sh -c 'for i in $(seq 30); do echo $i; sleep 0.02; done; [ ! -e "$1/again" ] || exit 143
      : >"$1/again"; exit 3' sh "$dir" 2>&1 || echo $? >"$dir/status") | head -1 >"$dir/err"
[ -e "$dir/again" ] || fail "mpirun has ended early"
[ "$(cat "$dir/status")" = 143 ] || fail "exit $(cat "$dir/status"), expected 143"

# A second signal does not wait for the grace period.
rm -f "$dir"/up.*
run -n 2 --grace 1000 -- "$DCP_RUN_RANK" "$dir" stubborn
until_true started 1
until_true up 1
kill -TERM $run
until_true grep -q 'asking the ranks' "$dir/err"
kill -TERM $run
ends 3

# The first signal after SIGUSR2 still leaves the ranks time to save; the next one does not.
rm -f "$dir"/up.*
run -n 2 --grace 1000 -- "$DCP_RUN_RANK" "$dir" stubborn
until_true started 1
until_true up 1
kill -USR2 $run
until_true grep -q 'SIGUSR2: asking the ranks' "$dir/err"
kill -TERM $run
until_true grep -q 'the ranks have been asked already' "$dir/err"
says_not 'killing what is left'
kill -TERM $run
ends 75
says 'killing what is left'

# Ranks end so that others can go on; if the run is requested to end meanwhile, it ends.
for signal in TERM USR2; do
    rm -f "$dir"/up.* "$dir/exit"
    run -n 2 --grace 1000 --control "$dir/control" -- "$DCP_RUN_RANK" "$dir" stubborn
    until_true started 1
    until_true up 1
    "$DCP_BIN/dcp-run" ctl "$dir/control" resize 3 2>"$dir/said" &
    until_true grep -q 'resize: asking the ranks' "$dir/err"
    kill -$signal $run
    until_true grep -q "SIG$signal: asking the ranks" "$dir/err"
    echo 143 >"$dir/exit"
    if [ $signal = TERM ]; then
        ends 143
        says_not 'start 2'
    else # the state that they handed over may be in memory only, so the next ranks save it
        ends 75
        says 'requested during the last start'
    fi
done
