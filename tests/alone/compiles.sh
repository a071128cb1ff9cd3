#!/usr/bin/env bash
# compiles.sh COMPILER INCLUDE...: all sources that call MPI also compile, without a warning, with
# libdcp's own mpi.h, which has a single rank. INCLUDE: folders with the headers of other libraries.
set -euo pipefail
compiler=$1
shift
includes=(-Ilibdcp/comm/alone -Ilibdcp -Ilibdcp/include -Ikernels/include -Itrainer -Ireshard)
for folder; do includes+=(-isystem "$folder"); done
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mapfile -t sources < <(grep -rlE 'MPI_[A-Z]|<mpi.h>' --include='*.c' libdcp trainer reshard | grep -v nccl)
[ ${#sources[@]} -gt 20 ] || { echo "only ${#sources[@]} files call MPI?"; exit 1; }
"$compiler" -std=gnu11 -D_GNU_SOURCE -fsyntax-only -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Werror \
    "${includes[@]}" "${sources[@]}"
