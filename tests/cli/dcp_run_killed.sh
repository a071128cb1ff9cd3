#!/usr/bin/env bash
# dcp-run itself is killed. No process of its job survives: neither ranks that ignore SIGTERM or are
# stopped, with mpirun and the guard stopped as well, nor a process that a rank has started in a
# session of its own. A reader of dcp-run's output sees its end. If the guard, the process between
# dcp-run and mpirun that ends the others, is killed instead, dcp-run goes on.
. "$(dirname "$0")/dcp_run_lib.sh"

parent_of() { awk '/^PPid:/ {print $2}' "/proc/$1/status"; }
stopped() { grep -q '^State:[[:space:]]*T' "/proc/$1/status"; }

# A rank, and a process that it starts in another session.
rank='setsid sh -c "echo \$\$ >>$1/left; exec sleep 1000" & exec "$DCP_RUN_RANK" "$1" stubborn'
run -n 3 -- sh -c "$rank" sh "$dir"
until_true started 1
until_true up 1
until_true test "$(wc -l <"$dir/left")" -eq 3
ranks=($(pids 1))
mpirun=$(parent_of "${ranks[0]}")
guard=$(parent_of "$mpirun")
kill -STOP "$guard" "$mpirun" "${ranks[1]}"
until_true stopped "$guard"
until_true stopped "$mpirun"
until_true stopped "${ranks[1]}"
kill -KILL $run
until_true gone "$mpirun" "${ranks[@]}" $(cat "$dir/left")

rm -f "$dir"/up.* "$dir/left"
: >"$dir/err"
sh -c 'echo $$ >"$1/pid"; shift; exec "$@" 2>&1' sh "$dir" "$DCP_BIN/dcp-run" -n 2 -- \
    "$DCP_RUN_RANK" "$dir" stubborn | cat >"$dir/err" &
reader=$!
until_true started 1
until_true up 1
kill -KILL "$(cat "$dir/pid")"
until_true gone $reader $(pids 1)

rm -f "$dir"/up.*
# leaves a process whose main thread has ended, which looks like a zombie
threads='import ctypes, os, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
open(os.environ["LEFT"], "w").write(str(os.getpid()))
ctypes.CDLL(None).syscall(60, 0)'
LEFT=$dir/threads run -n 2 -- sh -c '[ "$OMPI_COMM_WORLD_RANK" != 0 ] || [ -e "$LEFT" ] ||
    setsid python3 -c "$1" >/dev/null 2>&1 & shift; exec "$@"' sh "$threads" "$DCP_RUN_RANK" "$dir" stubborn
zombie() { grep -q '^State:[[:space:]]*Z' "/proc/$(cat "$dir/threads")/status"; }
until_true zombie
until_true started 1
until_true up 1
ranks=($(pids 1))
mpirun=$(parent_of "${ranks[0]}")
left=$(cat "$dir/threads")
kill -KILL "$(parent_of "$mpirun")"
until_true started 2
until_true gone "$mpirun" "${ranks[@]}" # an ending process has no environment any more, but still exists
[ ! -e "/proc/$left" ] || fail "a process without a main thread lives on"
until_true up 2
echo 0 >"$dir/exit"
ends 0
