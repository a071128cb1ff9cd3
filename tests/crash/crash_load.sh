#!/usr/bin/env bash
# One rank is killed or cannot read during a load: the load ends on all ranks, and the step stays
# unchanged.
. "$(dirname "$0")/crash_lib.sh"
fresh

killed() { # RANK CALL N
    injected "$1" -e "trace=$2" -e "inject=$2:signal=SIGKILL:when=$3" -- check "$store"
    was_injected "$*"
    [ $status -ne 0 ] || fail "$*: says it succeeded"
}

refused() { # RANK CALL ERROR N TEXT
    injected "$1" -e "trace=$2" -e "inject=$2:error=$3:when=$4" -- check "$store"
    was_injected "$*"
    [ $status -eq 3 ] || fail "$*: exit $status"
    says "$5"
}

killed 0 io_uring_enter 1
killed 1 io_uring_enter 5
refused 0 io_uring_enter EIO 1 "status -7: rank 0: read .*state.h5: Input/output error"
refused 1 io_uring_enter EIO 5 "status -7: rank 1: read .*state.h5: Input/output error"
ranks 2 check "$store" || fail "the step no longer loads"
[ "$(cat "$dir/out")" = 1 ] || fail "another step"
