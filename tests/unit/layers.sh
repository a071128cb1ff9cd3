#!/usr/bin/env bash
# Who may include what: core knows no MPI, HDF5 or CUDA; kernels know nothing of checkpoints; trainer and
# tools see the library's public headers only, tools of the trainer what parameters a model has; every
# public header compiles by itself, as C and as C++.
set -u
cd "$DCP_SOURCE" || exit 1
bad=0
refuse() { # NAME PATTERN FILES...: no file may include what the pattern names
    local name=$1 pattern=$2
    shift 2
    local found
    found=$(grep -nE "^#include [<\"]($pattern)" "$@")
    [ -z "$found" ] && return
    printf '%s\n%s\n' "$name" "$found"
    bad=1
}
headers() { find "$@" -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh'; }
mapfile -t core < <(headers libdcp/core)
mapfile -t kernels < <(headers kernels)
mapfile -t users < <(headers trainer reshard examples)
refuse "libdcp/core includes more than the core:" \
    'mpi|hdf5|cuda|liburing|dcp/mpi|comm/|copy/|h5/|io/|load/|plan/|save/|store/' "${core[@]}"
refuse "kernels include more than compute:" 'mpi|hdf5|dcp/|jansson' "${kernels[@]}"
refuse "users of the library include its private headers:" \
    'core/|comm/|copy/|h5/|io/|load/|plan/|save/' "${users[@]}"
mapfile -t tools < <(headers reshard)
refuse "tools include more of the trainer than a model's parameters:" \
    '(../)*trainer/|fsdp/|kernels/|state/|models/(arena|config|keys|model|parts|sample)' "${tools[@]}"
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
