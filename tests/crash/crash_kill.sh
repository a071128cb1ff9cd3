#!/usr/bin/env bash
# SIGKILL of one rank of a save at one of its system calls: what loads afterwards is the old or the
# new step, bit for bit, and the next save works.
. "$(dirname "$0")/crash_lib.sh"

kill_at() { # RANK CALL N STEPS [LAYOUT]
    fresh
    injected "$1" -e "trace=$2" -e "inject=$2:signal=SIGKILL:when=$3" -- save "$store" 2 ${5:-}
    was_injected "$*"
    [ $status -ne 0 ] || fail "$*: the save says it succeeded"
    loads "$4"
}

kill_at 0 mkdirat 1 1 # of the writer's folder
kill_at 0 mkdirat 2 1
kill_at 0 fallocate 1 1
kill_at 1 io_uring_enter 1 1
kill_at 0 io_uring_enter 2 1
kill_at 1 io_uring_enter 3 1
kill_at 0 io_uring_enter 8 1 # the tables
kill_at 1 fsync 1 1
kill_at 0 fsync 1 1
kill_at 0 fsync 2 1 # about.json
kill_at 0 fsync 3 1 # the folder
kill_at 0 renameat 1 "1 2"
kill_at 0 fsync 4 "1 2" # the directory
kill_at 0 symlinkat 1 2 # latest
kill_at 0 renameat 2 2
kill_at 1 fsync 1 1 sharded
kill_at 0 io_uring_enter 8 1 sharded
kill_at 0 renameat 1 "1 2" sharded
