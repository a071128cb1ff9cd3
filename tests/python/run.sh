#!/usr/bin/env bash
# Runs all tests of the Python package as `pip install ./libdcp/python` installs it: with numpy alone on each installed
# Python from 3.10 to 3.13 (wheel.sh), and all of them in an environment with torch, ray, torchtitan, transformers,
# accelerate, peft and lightning. Also runs mypy on package and examples. Programs that some tests run must be built, as
# tests/run.sh does.
#   tests/python/run.sh DIR
# Makes environments below DIR, or uses existing ones; takes 7 GB. PYTHON: see environment.sh.
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
python=$dir/environment/bin/python
"$tests/environment.sh" "$dir" & # while the wheel is built and tested
installing=$!
"$tests/wheel.sh" "$dir"
wait "$installing"
"$python" -m pip install --quiet --force-reinstall --no-deps "$dir"/wheel/*.whl
"$python" -m mypy --strict "$root/libdcp/python/src/libdcp"
"$python" -m mypy --strict "$root/examples/pytorch"

# Each test file runs in its own process, one more simultaneously than there are processors, since ranks wait for each
# other. The output of a file is printed when it has ended.
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
printf '%s\0' "$tests"/test_*.py | xargs -0 -P "$(($(nproc) + 1))" -I{} bash -c 'one_file "$@"' - "$python" {}
