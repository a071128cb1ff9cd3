#!/usr/bin/env bash
# Every public header compiles by itself, as C and as C++.
set -u
cd "$DCP_SOURCE" || exit 1
bad=0
for header in libdcp/include/dcp/*.h; do
    flags=(-fsyntax-only -Wall -Wextra -Werror -Ilibdcp/include)
    if [ "$(basename "$header")" = mpi.h ]; then
        # shellcheck disable=SC2207 # words are flags
        flags+=($(mpicc --showme:compile))
    fi
    gcc -std=c11 "${flags[@]}" -x c "$header" || bad=1
    if command -v g++ > /dev/null; then g++ "${flags[@]}" -Wno-cast-function-type -x c++ "$header" || bad=1; fi
done
exit $bad
