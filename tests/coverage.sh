#!/usr/bin/env bash
# tests/coverage.sh [CTEST ARGUMENTS...]: measures which lines of libdcp the tests run. Builds into build-coverage/
# without optimization, runs the tests that the arguments select (default: -L '^quick$'), and prints one line per file
# and the total, by gcovr (Debian's package). Pages with each line go to build-coverage/pages/index.html.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case ${1-} in
--help | -h) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" && exit 0 ;;
esac
command -v gcovr >/dev/null || { echo "coverage.sh: gcovr is missing: apt-get install gcovr" >&2; exit 2; }
[ $# -gt 0 ] || set -- -L '^quick$'
. cmake/mpi-env.sh
build=build-coverage
cmake --preset dev -B $build -DCMAKE_C_FLAGS="-O0 --coverage -fprofile-update=atomic" -DCMAKE_SHARED_LINKER_FLAGS=--coverage \
    -DCMAKE_EXE_LINKER_FLAGS=--coverage -DCMAKE_COMPILE_WARNING_AS_ERROR=OFF >/dev/null
cmake --build $build
find $build -name '*.gcda' -delete
ctest --test-dir $build -j4 --no-tests=error "$@" | tail -n 20 || echo "coverage.sh: some tests failed" >&2
mkdir -p $build/pages
gcovr --root . --object-directory $build --filter libdcp/ --gcov-ignore-parse-errors \
    --html-details $build/pages/index.html --print-summary --sort-percentage
