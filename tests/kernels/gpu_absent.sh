#!/usr/bin/env bash
# Without a GPU, tests/gpu.sh says so at once, ends with status 77, and leaves no files.
set -uo pipefail
if nvidia-smi -L 2>/dev/null | grep -q . || ls /dev/nvidia[0-9]* >/dev/null 2>&1; then
    echo "there is a GPU here: run tests/gpu.sh itself" >&2
    exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/tests"
cp "$(dirname "${BASH_SOURCE[0]}")/../gpu.sh" "$scratch/tests"
said=$("$scratch/tests/gpu.sh" 2>&1)
status=$?
[ $status = 77 ] || { echo "exit $status: $said"; exit 1; }
[[ $said == "gpu.sh: no GPU here"* ]] || { echo "said: $said"; exit 1; }
[ "$(ls "$scratch")" = tests ] || { echo "left behind: $(ls "$scratch")"; exit 1; }
