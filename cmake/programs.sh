#!/usr/bin/env bash
# cmake/programs.sh LOG: builds the programs into build/, without the tests unless build/ has them, and
# shows how far it is. What CMake, the compiler and ninja say goes to the file LOG; where the build
# fails, the end of it is printed, and the exit status is 3.
set -euo pipefail
[ $# -eq 1 ] || { sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}" >&2 && exit 2; }
log=$(realpath -- "$1")
exec 3>"$log"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Of ninja's lines "[DONE/ALL] ..." on stdin: on a terminal each, in place of the one before, else ten.
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
