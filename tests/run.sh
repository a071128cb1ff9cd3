#!/usr/bin/env bash
# Sets up, builds and tests everything: the whole suite in the release build, then the unit and mpi
# tests once more under ASan and UBSan. Ends with ctest's summary; exit 0 only if all passed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cmake/setup.sh
. cmake/mpi-env.sh

# build PRESET: configures and builds; silent but for errors where nothing changed.
build() {
    cmake --preset "$1" >/dev/null
    cmake --build --preset "$1"
}
build release
build asan
ctest --preset release --no-tests=error -j4
ctest --preset asan --no-tests=error -j4 -L '^(unit|mpi)$'
