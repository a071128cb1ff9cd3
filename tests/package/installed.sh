#!/usr/bin/env bash
# installed.sh BUILD_DIR [LAUNCHER...]: programs in C, C++ and Fortran work with what a build
# installs; the launcher starts them.
set -euo pipefail
prefix=$(mktemp -d "${TMPDIR:-/tmp}/package_installed.XXXXXX")
trap 'rm -rf "$prefix"' EXIT
cmake --install "$1" --prefix "$prefix" >/dev/null
"$DCP_SOURCE/tests/package/users.sh" "$prefix" "${@:2}"
