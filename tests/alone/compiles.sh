#!/usr/bin/env bash
# compiles.sh COMPILER INCLUDE...: all that calls MPI also compiles, without a warning, where libdcp's
# own mpi.h of one rank stands for it. INCLUDE: folders of the headers of other libraries.
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
