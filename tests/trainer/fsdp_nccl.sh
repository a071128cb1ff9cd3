#!/usr/bin/env bash
# fsdp_nccl.sh PROGRAM MPIRUN...: what NCCL fails at ends a run with status 3 and says why, also where a
# rank does not answer, and where NCCL does not even end when asked to.
set -u
program=$1
shift
for mode in "error: a peer is gone" "silent: a rank does not answer" "stuck: a peer is gone"; do
    said=$(timeout 60 "$@" -n 2 "$program" "${mode%%:*}" 2>&1)
    status=$?
    if [ $status != 3 ] || ! grep -q "dcp-train: rank [01]: NCCL: .*${mode#*: }" <<<"$said"; then
        echo "FAILED: ${mode%%:*}: exit $status, not 3: $said"
        exit 1
    fi
done
