#!/usr/bin/env bash
# All tests of the Python package, as `pip install ./libdcp/python` gives it: with numpy alone on each Python from 3.10
# to 3.13 that is here (wheel.sh), and all in an environment with torch, ray, torchtitan and transformers. Also mypy on the
# package and its examples.
#   tests/python/run.sh DIR
# Makes environments below DIR, or uses those that are there; takes 7 GB. PYTHON names the Python that the environment with
# torch is made of (default python3). tests/run.sh has built the programs that some tests run.
set -euo pipefail

if [ $# -ne 1 ]; then
    sed -n '2,7s/^# //p' "$0" >&2
    exit 2
fi
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1"
dir=$(cd "$1" && pwd)
tests=$root/tests/python
unset LIBDCP_LIBRARY PYTHONPATH
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1 DCP_STAND_IN=$root/build/lib/libstand_in_module.so

. "$root/cmake/mpi-env.sh"
"$tests/wheel.sh" "$dir"

python=$dir/environment/bin/python
[ -x "$python" ] || "${PYTHON:-python3}" -m venv "$dir/environment"
"$python" -m pip install --quiet numpy h5py torch mypy transformers safetensors scikit-learn 'ray[train]' 'torchtitan==0.3.*' \
    hypothesis torchdata
"$python" -m pip install --quiet --force-reinstall --no-deps "$dir"/wheel/*.whl
"$python" -m mypy --strict "$root/libdcp/python/src/libdcp"
"$python" -m mypy --strict "$root/examples/pytorch"

# Each file in a process of its own, as many at once as there are processors. What one has said is printed when it has
# ended.
one_file() { # PYTHON FILE
    local said status=0
    said=$(mktemp -p "$dir")
    "$1" -W ignore "$2" -v >"$said" 2>&1 || status=$?
    {
        flock 9
        echo "== ${2##*/}: $SECONDS s"
        cat "$said"
    } 9>"$dir/saying"
    rm "$said"
    return $status
}
export -f one_file
export dir
printf '%s\0' "$tests"/test_*.py | xargs -0 -P "$(nproc)" -I{} bash -c 'one_file "$@"' - "$python" {}
