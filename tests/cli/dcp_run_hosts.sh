#!/usr/bin/env bash
# --hosts and --on-failure with a single host: how a rank's death and a change of the file affect
# the number of ranks, and host files with which nothing is started. (tests/hosts has several
# hosts.)
. "$(dirname "$0")/dcp_run_lib.sh"

ranks() { pids "$1" | wc -w; }

# has K N: start K runs on N ranks.
has() {
    until_true started "$1"
    [ "$(ranks "$1")" -eq "$2" ] || fail "start $1 has $(ranks "$1") ranks, not $2"
    until_true up "$1"
}

kill_one() { kill -KILL "$(pids "$1" | awk '{print $1}')"; }

# refused WORDS ARGS...: ends with status 2 and a message that contains WORDS, without starting
# anything.
refused() {
    local words=$1
    shift
    run "$@" -- touch "$dir/started"
    ends 2
    says "$words"
    [ ! -e "$dir/started" ] || fail "something was started: $*"
}

# As many ranks as are left, but at least --min; after a change of the file the run grows again.
echo 'localhost slots=3' >"$dir/hosts"
run -n 3 --min 2 --max 4 --hosts "$dir/hosts" --on-failure shrink -- "$DCP_RUN_RANK" "$dir"
has 1 3
kill_one 1
has 2 2
kill_one 2
has 3 2
echo 'localhost slots=4 # mended' >"$dir/hosts"
has 4 4
says 'the hosts have changed'
says 'start 4, planned, on 4 ranks'

# A file that cannot be used changes nothing; a later valid one does.
echo 'localhost slots=1' >"$dir/hosts"
until_true grep -q 'fewer than --min 2' "$dir/err"
echo 'localhost slts=3' >"$dir/hosts"
until_true grep -q "hosts:1: unknown word 'slts'" "$dir/err"
started 5 && fail "a file of no use was used"
echo 'localhost slots=2' >"$dir/hosts"
has 5 2
echo 0 >"$dir/exit"
ends 0
rm "$dir/exit"

# This host, without a file.
run -n 2 --on-failure shrink -- "$DCP_RUN_RANK" "$dir"
has 1 2
kill_one 1
has 2 1
kill -TERM "$run"
ends 143

run -n 2 --on-failure fail -- "$DCP_RUN_RANK" "$dir"
has 1 2
kill_one 1
ends 3
says 'on-failure fail'

# A host that cannot be reached is a failure; its status is not taken for the program's.
printf 'localhost slots=1\nhost.invalid slots=1\n' >"$dir/hosts"
OMPI_MCA_plm_rsh_agent=/bin/false run -n 2 --hosts "$dir/hosts" --max-restarts 1 -- true
ends 3
says 'host host.invalid does not answer'
says '--on-failure shrink continues without it'

refused 'no such file' -n 2 --hosts "$dir/nowhere"
echo 'localhost:2' >"$dir/hosts"
refused "hosts:1: not a host name 'localhost:2'" -n 2 --hosts "$dir/hosts"
echo '-x slots=2' >"$dir/hosts" # must not become an option of ssh
refused "hosts:1: not a host name '-x'" -n 2 --hosts "$dir/hosts"
echo 'localhost slots=2' >"$dir/hosts"
refused '-n 3 is above the number of slots' -n 3 --hosts "$dir/hosts"
refused '--min 3 is above the number of slots' -n 4 --min 3 --on-failure shrink --hosts "$dir/hosts"
refused '--min 3 is above -n 2' -n 2 --min 3
refused '--restart-ranks 5 is not within' -n 4 --max 4 --restart-ranks 3,5
refused 'takes same, shrink or fail' -n 2 --on-failure grow
