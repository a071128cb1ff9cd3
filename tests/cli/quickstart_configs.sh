#!/usr/bin/env bash
# dcp-train takes every configuration in examples/configs as it stands.
set -euo pipefail
shopt -s failglob
for config in "$DCP_SOURCE"/examples/configs/*.json; do
    "$DCP_BIN/dcp-train" "$config" --print-config >/dev/null || { echo "$config is refused"; exit 1; }
done
