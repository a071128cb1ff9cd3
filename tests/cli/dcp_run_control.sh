#!/usr/bin/env bash
# dcp-run ctl, with a program that reports nothing to dcp-run: requests are answered. A second
# dcp-run for the same directory is refused, and so is another user. What a killed dcp-run left is
# replaced at once; if two start simultaneously, only one runs.
. "$(dirname "$0")/dcp_run_lib.sh"
control=$dir/ckpt/.control

# gives STATUS COMMAND...: COMMAND exits with STATUS. Its stdout goes to $dir/answer, its stderr to
# $dir/said.
gives() {
    local expected=$1 status=0
    shift
    PATH=$DCP_BIN:$PATH "$@" >"$dir/answer" 2>"$dir/said" || status=$?
    [ $status -eq "$expected" ] || fail "$*: exit $status, expected $expected: $(cat "$dir/said")"
}
tells() { grep -q -- "$1" "$dir/said" || fail "not told: $1, but: $(cat "$dir/said")"; }
holds() { # PYTHON: an expression that is true of the answer, `a`
    python3 -c 'import json, sys; a = json.load(open(sys.argv[1])); sys.exit(not eval(sys.argv[2]))' \
        "$dir/answer" "$1" || fail "not so: $1 of $(cat "$dir/answer")"
}

mkdir "$dir/ckpt"
gives 2 dcp-run ctl "$control" status
tells "no dcp-run is at $control: "
gives 2 dcp-run ctl "$control"
gives 2 dcp-run ctl "$control" dance
gives 0 dcp-run ctl --help
gives 0 dcp-run ctl --version

run -n 2 --watch "$dir/ckpt" -- "$DCP_RUN_RANK" "$dir"
until_true up 1
[ -S "$control" ] || fail "no socket at $control"
[ "$(stat -c %a "$control")" = 600 ] || fail "others may use the socket"
gives 0 dcp-run ctl "$control" status
holds "a['ranks'] == 2 and a['start'] == 1 and a['pid'] == $run and len(a['members']) == 2"
holds "a['state'] == 'running'"
gives 0 dcp-run ctl "$dir/ckpt" status # ctl finds the socket in the directory, too
gives 0 dcp-run ctl "$control" save
until_true test -e "$dir/usr1.0" -a -e "$dir/usr1.1"

gives 2 dcp-run -n 1 --watch "$dir/ckpt" -- "$DCP_RUN_RANK" "$dir"
tells "process $run on $(uname -n) supervises this run already"
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    chmod 755 "$dir" "$dir/ckpt"
    cp "$DCP_BIN/dcp-run" "$dir/dcp-run" # a place that this user can read
    library=$(dirname "$(ldd "$DCP_BIN/dcp-run" | sed -n 's/.*libdcp\.so.* => \([^ ]*\) .*/\1/p')")
    mkdir "$dir/lib" && cp "$library"/libdcp.so* "$dir/lib"
    gives 2 setpriv --reuid 65534 --regid 65534 --clear-groups env LD_LIBRARY_PATH="$dir/lib" \
        "$dir/dcp-run" ctl "$control" status
    tells "belongs to user root, who alone may use it"
fi

gives 0 dcp-run ctl "$control" resize 3
holds "a['ranks'] == 3"
until_true up 2
[ "$(pids 2 | wc -w)" = 3 ] || fail "no 3 ranks: $(pids 2)"
gives 0 dcp-run ctl "$control" status
holds "a['ranks'] == 3 and a['start'] == 2"
gives 2 dcp-run ctl "$control" resize 0
gives 2 dcp-run ctl "$control" resize

# A stop that is requested before any rank exists: the ranks end as soon as they appear.
mkdir "$dir/bin"
printf '#!/bin/sh\nuntil [ "$*" = --version ] || [ -e %s ]; do sleep 0.01; done\nexec %s "$@"\n' "$dir/go" "$(command -v mpirun)" >"$dir/bin/mpirun"
chmod +x "$dir/bin/mpirun"
PATH=$dir/bin:$PATH "$DCP_BIN/dcp-run" -n 2 --grace 1000 --watch "$dir/early" -- sleep 1000 2>"$dir/err.early" &
early=$!
until_true "$DCP_BIN/dcp-run" ctl "$dir/early" status >"$dir/answer"
holds "a['state'] == 'starting' and a['ranks'] == 2"
gives 0 dcp-run ctl "$dir/early" stop
gives 0 dcp-run ctl "$dir/early" status
holds "a['state'] == 'stopping'"
touch "$dir/go"
status=0
wait $early || status=$?
[ $status -eq 143 ] || fail "exit $status after an early stop, expected 143"

# dcp-run is killed and started again at once; the old ranks, which hold what they inherited, live
# on for a moment.
first=$(pids 2)
kill -KILL $run
run -n 2 --control "$control" -- "$DCP_RUN_RANK" "$dir" stubborn
until_true up 1
until_true gone $first
gives 0 dcp-run ctl "$control" status
holds "a['pid'] == $run"
gives 0 dcp-run ctl "$control" stop
kill -TERM $run # the ranks ignore the request
ends 3
[ ! -e "$control" ] || fail "$control is left"

# Two start simultaneously: one is refused before it has started anything.
rm -f "$dir"/up.*
for i in 1 2; do
    "$DCP_BIN/dcp-run" -n 1 --watch "$dir/ckpt" -- "$DCP_RUN_RANK" "$dir" 2>"$dir/err.$i" &
    racer[$i]=$!
done
until_true grep -q "supervises this run already" "$dir/err.1" "$dir/err.2"
until_true grep -q "start 1, 1 rank" "$dir/err.1" "$dir/err.2"
until_true compgen -G "$dir/up.*" >"$dir/answer"
[ "$(ls "$dir"/up.* | wc -l)" = 1 ] || fail "both have started ranks"
echo 0 >"$dir/exit"
statuses=
for i in 1 2; do
    status=0
    wait "${racer[$i]}" || status=$?
    statuses+=" $status"
done
[[ $statuses = " 0 2" || $statuses = " 2 0" ]] || fail "exit$statuses, expected 0 and 2"
[ ! -e "$control" ] || fail "$control is left"

# A path that is too long for a socket holds a file that names one, also after a kill and another
# start.
long=$dir/$(printf '%0100d' 0)/.control
export XDG_RUNTIME_DIR=$dir/runtime
mkdir "$(dirname "$long")" "$XDG_RUNTIME_DIR"
rm "$dir/exit" "$dir"/up.*
run -n 1 --watch "$(dirname "$long")" -- "$DCP_RUN_RANK" "$dir"
until_true up 1
[ -f "$long" ] || fail "$long is no file"
gives 0 dcp-run ctl "$long" status
gives 2 dcp-run -n 1 --control "$long" -- "$DCP_RUN_RANK" "$dir"
tells "process $run on $(uname -n) supervises this run already"
kill -KILL $run
run -n 1 --watch "$(dirname "$long")" -- "$DCP_RUN_RANK" "$dir"
until_true up 1
gives 0 dcp-run ctl "$long" stop
ends 143
[ ! -e "$long" ] || fail "$long is left"
[ -z "$(ls "$XDG_RUNTIME_DIR")" ] || fail "left: $(ls "$XDG_RUNTIME_DIR")"
echo 0 >"$dir/exit"

# A directory that cannot contain a socket: the run continues without one, unless --control requests
# it.
gives 0 dcp-run -n 1 --watch /proc -- "$DCP_RUN_RANK" "$dir"
tells "warning: no requests are accepted: cannot make the control socket /proc/.control"
gives 2 dcp-run -n 1 --control "$dir/none/socket" -- "$DCP_RUN_RANK" "$dir"
tells "cannot make the control socket $dir/none/socket: No such file"
gives 2 dcp-run -n 1 --control "$dir/exit" -- "$DCP_RUN_RANK" "$dir"
tells "$dir/exit exists, and is not a control socket"
