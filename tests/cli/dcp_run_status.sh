#!/usr/bin/env bash
# Statuses 0, 2, 75 and 143 are passed on without a restart. Status 1 is passed on only from ranks
# that report how they end, because Python ends with it after any exception. Wrong usage is 2,
# before anything starts.
. "$(dirname "$0")/dcp_run_lib.sh"
# After a failure mpirun waits a second or two for the other ranks, which these tests do not need.
export OMPI_MCA_odls_base_sigkill_timeout=0

for status in 0 2 75 143; do
    echo $status >"$dir/exit"
    run -n 2 -- "$DCP_RUN_RANK" "$dir"
    ends $status
    [ "$(grep -c '^dcp-run: start [0-9]*, ' "$dir/err")" -eq 1 ] || fail "status $status was restarted"
done

echo 1 >"$dir/exit"
run -n 2 --max-restarts 1 -- "$DCP_RUN_RANK" "$dir"
ends 3
[ "$(grep -c '^dcp-run: start [0-9]*, ' "$dir/err")" -eq 2 ] || fail "status 1 of a program that tells nothing is final"

# Under an mpirun that, like that of Open MPI 5, does not know --quiet, mpirun's own messages are
# hidden, too.
mkdir "$dir/bin"
real=$(command -v mpirun)
cat >"$dir/bin/mpirun" <<END
#!/bin/sh
for word; do [ "\$word" != --quiet ] || { echo "unrecognized option" >&2; exit 213; }; done
exec "$real" "\$@"
END
chmod +x "$dir/bin/mpirun"
echo 2 >"$dir/exit"
PATH=$dir/bin:$PATH run -n 2 -- "$DCP_RUN_RANK" "$dir"
ends 2
says_not '^mpirun'
says_not 'Primary job'
says_not 'unrecognized'

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
printf 'localhost slots=2\n' >"$dir/hosts"
printf 'localhost slots=many\n' >"$dir/bad_hosts"
misuse -n 2 --hosts "$dir/none" -- true
says 'cannot read the host file'
misuse -n 2 --hosts "$dir/bad_hosts" -- true
says "bad_hosts:1: not a number of slots 'many'"
misuse -n 4 --hosts "$dir/hosts" -- true
says '-n 4 is above the number of slots'
misuse -n 2 --min 3 -- true
says '--min 3 is above -n 2'
misuse -n 2 --max 1 -- true
says '--max 1 is below -n 2'
misuse -n 2 --stall 0 -- true
says 'seconds above 0, not: 0'
misuse -n 2 --on-failure never -- true
says 'same, shrink or fail, not: never'
misuse -n 2 --on-failure shrink --restart-ranks 1 -- true
misuse -n 2 --logs
says 'argument missing after --logs'
misuse -n 2 --no-such-option -- true
says 'unknown option --no-such-option'
misuse -n 2 -x -- true
says 'unknown option -x'
misuse -n 2 --watch
says 'argument missing after --watch'
misuse -n
says 'argument missing after -n'
misuse -n 2 -- "$dir/no-such-program"
misuse -n 2 -- no-such-program
misuse -n 2 -- true "$(head -c 100000 /dev/zero | tr '\0' x)" $(seq 10000)
says 'not accept; pass them in a file'

run --help
ends 0
grep -q '^Usage: dcp-run' "$dir/out" || fail "no help on stdout"
"$DCP_BIN/dcp-run" --version >/dev/full 2>"$dir/err" && fail "a full stdout passes"
says 'dcp-run: cannot write to stdout'
run --version
ends 0
grep -q '^dcp-run [0-9]' "$dir/out" || fail "no version on stdout"

# The ranks' stdout and stderr pass through, and PROGRAM's options are not taken for dcp-run's.
run -n 1 -- sh -c 'echo data "$@"; echo diagnostics >&2' sh -n 7
ends 0
[ "$(cat "$dir/out")" = "data -n 7" ] || fail "stdout: $(cat "$dir/out")"
says diagnostics

# A program that ends at once, or before dcp-run sees its process, is reported nevertheless.
run -n 1 -- sh -c 'exit 2'
ends 2
says '^dcp-run: start 1, 1 ranks, pids\( [0-9]*\| (ended at once)\)$'
says 'start 1 ended with status 2, which no restart would change'

# Killed processes have time to disappear, whatever --grace says.
run -n 2 --grace 0 --max-restarts 1 -- sh -c 'setsid sleep 1000 & exit 3'
ends 3
says 'giving up after 1 restart'
says_not 'are still alive'

# If standard streams are closed, dcp-run's own files must not get their numbers: messages would go
# into them.
"$DCP_BIN/dcp-run" -n 1 -- sh -c 'exit 2' <&- >&- 2>&- && fail "2 is expected" || status=$?
[ $status = 2 ] || fail "exit $status, expected 2"

# In another PID namespace dcp-run must not take the processes that /proc shows for its own.
if unshare --pid --fork true 2>/dev/null; then
    timeout 60 unshare --pid --fork "$DCP_BIN/dcp-run" -n 1 -- true 2>"$dir/err" && fail "3 is expected"
    says '/proc shows another PID namespace'
fi

# DCP_RUN_RESTART applies only to the ranks of this run.
export DCP_RUN_RESTART=1
run -n 1 -- sh -c 'echo "${DCP_RUN_RESTART-unset}"'
ends 0
[ "$(cat "$dir/out")" = unset ] || fail "the first start has DCP_RUN_RESTART"
