#!/usr/bin/env bash
# torch's own tests of distributed checkpoints, those that go through save and load with a storage, on libdcp's Writer
# and Reader; prints the table of docs/torch-suite.md.
#   tests/python/torch_suite.sh CHECKOUT [WORD]     # a checkout of PyTorch; only files with WORD in their path
# PYTHON (python3) has torch of that version, numpy, expecttest, hypothesis, psutil and zstandard. LIBDCP_LIBRARY says
# where another library than build/lib's is. Exit: 0 all as expected; 1 not; 2 wrong usage; 77 no checkout, or not its
# torch.
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
