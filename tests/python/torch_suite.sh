#!/usr/bin/env bash
# Runs those of torch's own tests of distributed checkpoints that save and load through a storage, with libdcp's Writer
# and Reader as the storage; prints the table of docs/torch-suite.md.
#   tests/python/torch_suite.sh CHECKOUT [WORD]     # a checkout of PyTorch; only files with WORD in their path
# PYTHON (python3) must have torch of that version, numpy, expecttest, hypothesis, psutil and zstandard.
# LIBDCP_LIBRARY may name another library than that of build/lib. Exit: 0 all results as expected; 1 other results;
# 2 wrong usage; 77 no checkout, or its version differs from torch's.
set -euo pipefail

if [ $# -gt 2 ]; then
    sed -n '2,7s/^# //p' "$0" >&2
    exit 2
fi
if [ ! -d "${1-}/test/distributed/checkpoint" ]; then
    echo "skipped: no checkout of PyTorch with its tests${1:+ in $1}; name one: tests/python/torch_suite.sh CHECKOUT"
    exit 77
fi
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python3}
if ! missing=$("$python" -c 'import expecttest, hypothesis, numpy, psutil, torch, zstandard' 2>&1); then
    echo "skipped: $python: ${missing##*$'\n'}"
    exit 77
fi
export LIBDCP_LIBRARY=${LIBDCP_LIBRARY:-$root/build/lib/libdcp.so.1} PYTHONPATH=$root/libdcp/python/src
exec "$python" -B "$root/tests/python/torch_suite.py" "$@"
