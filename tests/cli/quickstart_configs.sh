#!/usr/bin/env bash
# dcp-train takes every configuration in examples/configs as it stands; the quickstart its text.
set -euo pipefail
shopt -s failglob
for config in "$DCP_SOURCE"/examples/configs/*.json; do
    "$DCP_BIN/dcp-train" "$config" --print-config >/dev/null || { echo "$config is refused"; exit 1; }
done

# The quickstart says at once when a text is too small to learn from.
dir=$(mktemp -d "${TMPDIR:-/tmp}/quickstart.XXXXXX")
trap 'rm -rf "$dir"' EXIT
echo hi >"$dir/tiny"
for text in "$dir/tiny" "$dir"; do
    status=0
    said=$("$DCP_SOURCE/examples/quickstart.sh" "$text" 2>&1) || status=$?
    [ $status -eq 2 ] && [ "$said" = "quickstart: $text holds 3 bytes of text; at least 4096 are needed" ] ||
        { echo "exit $status: $said"; exit 1; }
done
