#!/usr/bin/env bash
# fsdp_nccl.sh PROGRAM MPIRUN...: if NCCL fails, the run ends with status 3 and gives the reason,
# also if a rank does not answer, and if NCCL does not even end when it is aborted.
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
