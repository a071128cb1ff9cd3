#!/usr/bin/env bash
# Statuses 0, 1, 2 and 143 are passed on without a restart; wrong usage is 2 before anything starts.
. "$(dirname "$0")/dcp_run_lib.sh"

for status in 0 1 2 143; do
    echo $status >"$dir/exit"
    run -n 2 -- "$DCP_RUN_RANK" "$dir"
    ends $status
    [ "$(grep -c '^dcp-run: start' "$dir/err")" -eq 1 ] || fail "status $status was restarted"
done

misuse() {
    run "$@"
    ends 2
    says '^dcp-run: '
    says_not 'start 1'
}
misuse
misuse -n 2
misuse -n 0 -- true
misuse -n two -- true
misuse -- true
misuse -n 2 --restart-ranks 2,x -- true
misuse -n 2 --restart-ranks 2, -- true
misuse -n 2 --max-restarts -1 -- true
misuse -n 2 --grace soon -- true
misuse -n 2 --no-such-option -- true
misuse -n 2 -- "$dir/no-such-program"
misuse -n 2 -- no-such-program

run --help
ends 0
grep -q '^Usage: dcp-run' "$dir/out" || fail "no help on stdout"
run --version
ends 0
grep -q '^dcp-run [0-9]' "$dir/out" || fail "no version on stdout"

# What ranks print goes through, both ways, and PROGRAM's options are its own.
run -n 1 -- sh -c 'echo data "$@"; echo diagnostics >&2' sh -n 7
ends 0
[ "$(cat "$dir/out")" = "data -n 7" ] || fail "stdout: $(cat "$dir/out")"
says diagnostics
