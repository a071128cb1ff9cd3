#!/usr/bin/env bash
# Every public header compiles alone, as C and as C++, and so do the macros that set sizes.
set -u
cd "$DCP_SOURCE" || exit 1
bad=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for header in libdcp/include/dcp/*.h; do
    flags=(-fsyntax-only -Wall -Wextra -Werror -Ilibdcp/include)
    if [ "$(basename "$header")" = mpi.h ]; then
        # shellcheck disable=SC2207 # words are flags
        flags+=($(mpicc --showme:compile))
    fi
    gcc -std=c11 "${flags[@]}" -x c "$header" || bad=1
    if command -v g++ > /dev/null; then g++ "${flags[@]}" -Wno-cast-function-type -x c++ "$header" || bad=1; fi
done

{
    echo '#include "dcp/dcp.h"'
    echo 'int sizes_are_set(void);'
    echo 'int sizes_are_set(void) {'
    sed -n 's/^#define \(DCP_[A-Z_]*_INIT\) DCP_SIZED(\(.*\))$/    { const \2 s = \1; if (s.size != sizeof s) return 0; }/p' \
        libdcp/include/dcp/*.h
    echo '    return 1;'
    echo '}'
    echo 'int main(void) { return sizes_are_set() ? 0 : 1; }'
} > "$scratch/sizes.c"
[ "$(grep -c '_INIT' "$scratch/sizes.c")" -ge 13 ] || bad=1
flags=(-Wall -Wextra -Wpedantic -Werror -Ilibdcp/include -o "$scratch/sizes")
gcc -std=c11 "${flags[@]}" "$scratch/sizes.c" && "$scratch/sizes" || bad=1
if command -v g++ > /dev/null; then
    for standard in c++11 c++20; do
        g++ -std=$standard "${flags[@]}" -x c++ "$scratch/sizes.c" && "$scratch/sizes" || bad=1
    done
fi
exit $bad
