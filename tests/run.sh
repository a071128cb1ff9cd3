#!/usr/bin/env bash
# tests/run.sh [--quick]: sets up, builds and tests everything: the whole suite in the release build,
# including the code for GPUs if nvcc is installed, then the unit and mpi tests under ASan and UBSan.
#   --quick   only the tests with label `quick`, in the release build, in at most three minutes after
#             an incremental build; prints at its end what it left out
#   --help
# Ends with ctest's summary. Exit: 0 all passed; 2 wrong usage; otherwise something failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

quick=
case $#:${1-} in
0:) ;;
1:--quick) quick=yes ;;
1:--help)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' tests/run.sh
    exit 0
    ;;
*)
    echo "run.sh: only --quick and --help are known, not: $*" >&2
    exit 2
    ;;
esac
cmake/setup.sh --tests
. cmake/mpi-env.sh
strict=() # warnings are errors only in CI, because other compilers have other warnings
[ -z "${CI:-}" ] || strict=(-DCMAKE_COMPILE_WARNING_AS_ERROR=ON)

if [ "$quick" ]; then
    cmake --preset release "${strict[@]}" >/dev/null
    cmake --build --preset release --target quick_tests
    status=0
    ctest --preset release --no-tests=error -j4 -L '^quick$' || status=$?
    count() { ctest --preset release -N "$@" | sed -n 's/^Total Tests: //p'; }
    echo "Left out: $(count -LE '^quick$') of $(count) tests, what sanitizers find, and code for GPUs; tests/run.sh runs all."
    exit $status
fi

cuda=()
PATH=$PATH:/usr/local/cuda/bin command -v nvcc >/dev/null && cuda=(-DDCP_CUDA=ON)
cmake --preset release "${strict[@]}" "${cuda[@]}" >/dev/null
cmake --build --preset release
cmake --preset asan >/dev/null
cmake --build --preset asan --target quick_tests
ctest --preset release --no-tests=error -j4
ctest --preset asan --no-tests=error -j4 -L '^(unit|mpi)$'
