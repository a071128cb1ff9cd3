#!/usr/bin/env bash
# installed.sh BUILD_DIR [LAUNCHER...]: what a build installs serves programs in C, C++ and Fortran, which
# the launcher starts.
set -euo pipefail
prefix=$(mktemp -d "${TMPDIR:-/tmp}/package_installed.XXXXXX")
trap 'rm -rf "$prefix"' EXIT
cmake --install "$1" --prefix "$prefix" >/dev/null
"$DCP_SOURCE/tests/package/users.sh" "$prefix" "${@:2}"
