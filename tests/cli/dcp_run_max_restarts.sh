#!/usr/bin/env bash
# The count of restarts begins again whenever a newer step has appeared, and only then. The watched
# directory is that of --watch, or of dcp-train's configuration and overrides.
. "$(dirname "$0")/dcp_run_lib.sh"

# After a failure mpirun waits a second or two for the other ranks, which these tests do not need.
export OMPI_MCA_odls_base_sigkill_timeout=0

starts() { grep -c '^dcp-run: start [0-9]*, ' "$dir/err"; }
expect_starts() { [ "$(starts)" -eq "$1" ] || fail "$(starts) starts, expected $1"; }

# No step appears: one start and two restarts.
echo 3 >"$dir/exit"
run -n 2 --max-restarts 2 --watch "$dir/ckpt" -- "$DCP_RUN_RANK" "$dir"
ends 3
expect_starts 3
says "giving up after 2 restarts without a newer step"

# One new step per start: three failures in a row, although only one restart is allowed.
mkdir "$dir/ckpt"
run -n 2 --max-restarts 1 --watch "$dir/ckpt" -- "$DCP_RUN_RANK" "$dir" steps 4
ends 0
expect_starts 4
says "restart 1 of 1, on 2 ranks, newest complete step 3"

[ "$(xargs <"$dir/out")" = "unset 1 1 1" ] || fail "DCP_RUN_RESTART: $(cat "$dir/out")"

# At a restart nothing of the earlier start is left, so its stores may be taken over.
run -n 1 --max-restarts 1 --grace 7 -- sh -c 'echo "${DCP_RUN_TAKE_OVER-unset} $DCP_RUN_GRACE"; exit 3'
ends 3
[ "$(xargs <"$dir/out")" = "unset 7 1 7" ] || fail "DCP_RUN_TAKE_OVER, DCP_RUN_GRACE: $(cat "$dir/out")"

# Steps that existed before are no progress, nor are older steps that are published again.
run -n 1 --max-restarts 2 --watch "$dir/ckpt" -- \
    sh -c "mv '$dir'/ckpt/step-00000002 '$dir/gone'; rm -r '$dir/gone'; mkdir '$dir'/ckpt/step-00000002
           rm -r '$dir'/ckpt/step-0000000[34]; exit 3"
ends 3
expect_starts 3
says "restart 2 of 2, on 1 rank, newest complete step 2"
says "giving up after 2 restarts"

# Without a watched directory the second failure is the last.
rm -r "$dir/ckpt" && mkdir "$dir/ckpt"
run -n 1 --max-restarts 1 -- "$DCP_RUN_RANK" "$dir" steps 6
ends 3
expect_starts 2

# If the ranks report that a restart would fail in the same way, one restart is tried nevertheless,
# and no more if the reason is the same; different reasons do not limit the restarts.
run -n 1 -- sh -c 'echo "the disk is full" >"$DCP_RUN_REASON"; exit 3'
ends 3
expect_starts 2
says "giving up: restart 1 failed like the start before it, and another restart would fail, too: the disk is full"
run -n 1 --max-restarts 2 -- sh -c 'echo "$$" >"$DCP_RUN_REASON"; exit 3'
ends 3
expect_starts 3
says "giving up after 2 restarts"

# A reason that forbids any restart.
run -n 1 -- sh -c 'echo "final: it was moved" >"$DCP_RUN_REASON"; exit 3'
ends 3
expect_starts 1
says "giving up: it was moved"

# Status 1 is a failure if the program reports its statuses, but has not reported this one.
run -n 1 --max-restarts 1 -- "$DCP_RUN_RANK" "$dir" dies 1
ends 3
expect_starts 2
says "start 1 failed with status 1; rank 0, pid $(pids 1), ended without saying how"
run -n 1 -- "$DCP_RUN_RANK" "$dir" tells 1
ends 1
expect_starts 1

# Any other status without a report is a failure as well, even 0, for example after a library calls
# _exit.
run -n 1 --max-restarts 1 -- "$DCP_RUN_RANK" "$dir" dies 0
ends 3
expect_starts 2
says "start 2 failed with status 0; rank 0, pid $(pids 2), ended without saying how"

# dcp-train's own directory: from the configuration file, or from an override, which takes
# precedence.
cat >"$dir/dcp-train" <<EOF
#!/bin/sh
exec "$DCP_RUN_RANK" "$dir" steps 3
EOF
chmod +x "$dir/dcp-train"
expect_watched() { # CONFIGURATION [OVERRIDE]
    rm -r "$dir/ckpt" && mkdir "$dir/ckpt"
    echo "$1" >"$dir/config.json"
    shift
    run -n 1 --max-restarts 1 -- "$dir/dcp-train" "$dir/config.json" "$@"
    ends 0
    expect_starts 3
}
expect_watched "{\"checkpoint\": {\"dir\": \"$dir/ckpt\"}}"
expect_watched "{\"checkpoint\": {\"dir\": \"$dir/other\"}}" max_steps=3 checkpoint.dir="$dir/ckpt"
