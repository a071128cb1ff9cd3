#!/usr/bin/env bash
# All C and CUDA sources are formatted by clang-format 14; other versions format some places
# differently.
#   tests/structure/format.sh          fails with the places that differ; 77 without clang-format 14
#   tests/structure/format.sh --fix    changes the files
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

format=$(command -v clang-format-14 || command -v clang-format) || { echo "no clang-format here"; exit 77; }
"$format" --version | grep -q 'version 14\.' || { echo "$format is not version 14"; exit 77; }
git rev-parse --git-dir >/dev/null 2>&1 || { echo "no git repository here, which says which files are sources"; exit 77; }
case ${1-} in
--fix) how=(-i) ;;
*) how=(--dry-run --Werror) ;;
esac
git ls-files -z '*.c' '*.h' '*.cu' '*.cuh' '*.hpp' | xargs -0 -P "$(nproc)" -n 100 "$format" "${how[@]}"
