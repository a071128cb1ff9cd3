#!/usr/bin/env bash
# --logs: the output of each rank of each start is in its own file, each line with date and time,
# and on the console, each line with time and rank. If the folder cannot be made, dcp-run ends
# before it starts anything.
. "$(dirname "$0")/dcp_run_lib.sh"

time='[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\.[0-9]{3}'
date='20[0-9]{2}-[01][0-9]-[0-3][0-9]'

run -n 2 --restart-ranks 3 --logs "$dir/logs" -- bash -c \
    'printf "I am "; echo "problem of $PMIX_RANK" >&2; echo "$PMIX_RANK"; exec "$@"' \
    bash "$DCP_RUN_RANK" "$dir"
until_true up 1
kill -KILL "$(pids 1 | awk '{print $2}')"
until_true up 2
echo 0 >"$dir/exit"
ends 0
for k in 1 2; do
    [ "$(ls "$dir/logs/start-$k" | grep -c '^rank-')" -eq $((k + 1)) ] || fail "files of start $k"
    for ((r = 0; r < k + 1; r++)); do
        log=$dir/logs/start-$k/rank-$r.log
        grep -Eqx "$date $time I am $r" "$log" || fail "not in $log: $(cat "$log")"
        grep -Eqx "$date $time problem of $r" "$log" || fail "not in $log: $(cat "$log")"
        grep -Eqx "$time rank $r: I am $r" "$dir/out" || fail "not on stdout: $(cat "$dir/out")"
        grep -Eqx "$time rank $r: problem of $r" "$dir/err" || fail "not on stderr"
    done
done
[ "$(grep -c 'I am 0' "$dir/out")" -eq 2 ] || fail "not once for each start: $(cat "$dir/out")"

run -n 2 --logs "$dir/exit/logs" -- touch "$dir/started"
ends 2
says "logs: cannot make the folder $dir/exit/logs"
[ ! -e "$dir/started" ] || fail "something was started"
