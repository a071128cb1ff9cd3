#!/usr/bin/env bash
# Tests the Python package with torch: makes an environment below DIR (some gigabytes), and runs all tests of this
# folder in it, on the library of build/lib.
#   tests/python/run.sh DIR
# LIBDCP_LIBRARY says where another library is.
set -euo pipefail

if [ $# -ne 1 ]; then
    sed -n '2,5s/^# //p' "$0" >&2
    exit 2
fi
root=$(cd "$(dirname "$0")/../.." && pwd)
environment=$1/environment
[ -x "$environment/bin/python" ] || python3 -m venv "$environment"
"$environment/bin/python" -m pip install --quiet numpy h5py torch mypy scikit-learn "ray[train]" "torchtitan==0.3.*"
export LIBDCP_LIBRARY=${LIBDCP_LIBRARY:-$root/build/lib/libdcp.so.1} PYTHONPATH=$root/libdcp/python/src
"$environment/bin/python" -m mypy --strict "$root/libdcp/python/src/libdcp"
"$environment/bin/python" -m mypy --strict "$root/examples/pytorch"
"$environment/bin/python" -m unittest discover --start-directory "$root/tests/python"
