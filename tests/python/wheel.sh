#!/usr/bin/env bash
# Tests what `pip install ./libdcp/python` installs, without the source tree: builds the wheel, and for each installed
# Python from 3.10 to 3.13 installs it beside numpy and h5py in an environment below DIR and runs the tests of numpy
# states on it; as root, it also does so with the libraries hidden that the wheel was built with.
#   tests/python/wheel.sh DIR
# PYTHONS names other Pythons, for example: "python3.11 /opt/python3.13/bin/python".
set -euo pipefail

if [ $# -ne 1 ]; then
    sed -n '2,6s/^# //p' "$0" >&2
    exit 2
fi
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1"
dir=$(cd "$1" && pwd)
unset LIBDCP_LIBRARY PYTHONPATH

pythons() {
    local version python
    if [ -n "${PYTHONS-}" ]; then
        printf '%s\n' $PYTHONS
        return
    fi
    for version in 3.10 3.11 3.12 3.13; do
        for python in "$(command -v python$version || true)" ~/.pyenv/versions/$version*/bin/python; do
            "$python" -c "" 2>/dev/null && echo "$python" && break
        done
    done
}

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# As root, hides the libraries that the wheel was built with, in a mount namespace of its own.
hidden() {
    if [ "$(id -u)" -ne 0 ] || ! unshare --mount true 2>/dev/null; then
        echo "not tried without HDF5, ISA-L, jansson and liburing: that takes root" >&2
        return
    fi
    unshare --mount bash -c '
        for library in /usr/lib/*/lib{hdf5,isal,jansson,uring,mpi,sz,aec}*.so*; do
            [ -f "$library" ] && mount --bind /dev/null "$library"
        done
        exec "$@"' - "$@"
}

rm -rf "$dir/wheel"
mapfile -t all < <(pythons)
[ ${#all[@]} -gt 0 ] || fail "no Python from 3.10 to 3.13 is here"
n=0
for python in "${all[@]}"; do
    name=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    env=$dir/$name
    [ -x "$env/bin/python" ] || "$python" -m venv "$env"
    [ -d "$dir/wheel" ] || "$env/bin/python" -m pip wheel --quiet --no-deps --wheel-dir "$dir/wheel" "$root/libdcp/python"
    "$env/bin/python" -m pip install --quiet numpy h5py
    "$env/bin/python" -m pip install --quiet --force-reinstall --no-deps "$dir"/wheel/*.whl
    native=$("$env/bin/python" -c 'import libdcp; print(libdcp.__path__[0] + "/_native")')
    if ldd "$native"/*.so "$native"/../bin/* | grep '=>' |
        grep -vE "=> ($native/|$native/../bin/../_native/|[^ ]*/lib(c|m|dl|rt|pthread)\.so)"; then
        fail "$native needs what is not in the wheel"
    fi
    [ -s "$native/licenses/libdcp.txt" ] || fail "the licence is not in the wheel"
    echo "== $name"
    for test in numpy programs; do
        (cd "$dir" && hidden "$env/bin/python" -B "$root/tests/python/test_$test.py" -q)
    done
    for test in numpy options places programs lazy hf_load h5py; do
        (cd "$dir" && "$env/bin/python" -B "$root/tests/python/test_$test.py" -q)
    done
    n=$((n + 1))
done
echo "the wheel works on $n Pythons"
