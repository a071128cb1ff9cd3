#!/usr/bin/env bash
# SIGKILL of one rank at one of its system calls during a save: afterwards the old or the new step
# loads, bit for bit, and the next save works.
. "$(dirname "$0")/crash_lib.sh"

kill_at() { # RANK CALL N STEPS [LAYOUT]
    fresh
    injected "$1" -e "trace=$2" -e "inject=$2:signal=SIGKILL:when=$3" -- save "$store" 2 ${5:-}
    was_injected "$*"
    [ $status -ne 0 ] || fail "$*: the save says it succeeded"
    loads "$4"
}

kill_at 0 mkdirat 1 1 # makes the writer's folder
kill_at 0 mkdirat 2 1
kill_at 0 fallocate 1 1
kill_at 1 io_uring_enter 1 1
kill_at 0 io_uring_enter 2 1
kill_at 1 io_uring_enter 3 1
kill_at 0 io_uring_enter 8 1 # writes the tables
kill_at 1 fsync 1 1
kill_at 0 fsync 1 1
kill_at 0 fsync 2 1 # syncs about.json
kill_at 0 fsync 3 1 # syncs the step's folder
kill_at 0 renameat 1 "1 2"
kill_at 0 fsync 4 "1 2" # syncs the directory
kill_at 0 symlinkat 1 2 # makes the link latest
kill_at 0 renameat 2 2
kill_at 1 fsync 1 1 sharded
kill_at 0 io_uring_enter 8 1 sharded
kill_at 0 renameat 1 "1 2" sharded
