#!/usr/bin/env bash
# run.sh PROGRAM FOLDER [ARGUMENT]: runs PROGRAM, which was built for 1.0, with the libdcp.so.1 in
# FOLDER.
set -euo pipefail
loaded=$(LD_LIBRARY_PATH=$2 ldd "$1" | awk '$1 == "libdcp.so.1" { print $3 }')
[ "$(realpath "$(dirname "$loaded")")" = "$(realpath "$2")" ] || { echo "loaded $loaded"; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
LD_LIBRARY_PATH=$2 "$1" "$scratch" ${3:+"$3"}
