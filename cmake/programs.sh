#!/usr/bin/env bash
# cmake/programs.sh LOG: builds the programs into build/, without the tests unless build/ has them, and
# shows its progress. The output of CMake, the compiler and ninja goes to the file LOG; if the build
# fails, prints the end of LOG and exits with status 3.
set -euo pipefail
[ $# -eq 1 ] || { sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}" >&2 && exit 2; }
log=$(realpath -- "$1")
exec 3>"$log"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Reads ninja's lines "[DONE/ALL] ..." from stdin. On a terminal each replaces the previous one; otherwise prints ten.
show_progress() {
    local line tenth=0
    while IFS= read -r line; do
        echo "$line" >&3
        [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
        local steps="${BASH_REMATCH[1]} of ${BASH_REMATCH[2]} files"
        if [ -t 1 ]; then
            printf '\r  %s\033[K' "$steps"
        elif [ $((10 * BASH_REMATCH[1] / BASH_REMATCH[2])) -gt $tenth ]; then
            tenth=$((10 * BASH_REMATCH[1] / BASH_REMATCH[2]))
            echo "  $steps"
        fi
    done
    [ ! -t 1 ] || echo
}

tests=(-DDCP_TESTS=OFF)
! grep -qs '^DCP_TESTS:[A-Z]*=ON' build/CMakeCache.txt || tests=()
{ cmake --preset release "${tests[@]}" && cmake --build --preset release --target programs; } 2>&1 | show_progress || {
    echo "programs.sh: the build failed; the log is $log:" >&2
    tail -n 20 "$log" >&2
    exit 3
}
