#!/usr/bin/env bash
# without_mpi.sh BUILD_DIR [OPTIONS...]: builds with -DDCP_MPI=OFF in BUILD_DIR, which later runs
# use again. The installation requires no MPI, and programs in C, C++ and Fortran work with it.
set -euo pipefail
build=$1
prefix=$(mktemp -d "${TMPDIR:-/tmp}/package_without.XXXXXX")
trap 'rm -rf "$prefix"' EXIT
{
    cmake -S "$DCP_SOURCE" -B "$build" -G Ninja -DDCP_MPI=OFF -DBUILD_TESTING=OFF -DCMAKE_BUILD_TYPE=Debug "${@:2}" &&
        cmake --build "$build" -j2 --target programs &&
        cmake --install "$build" --prefix "$prefix"
} >"$prefix.log" 2>&1 || { tail -40 "$prefix.log"; rm "$prefix.log"; exit 1; }
rm "$prefix.log"
[ ! -e "$prefix/include/dcp/mpi.h" ] || { echo "FAILED: dcp/mpi.h is installed"; exit 1; }
for file in "$prefix"/lib*/libdcp.so "$prefix"/lib*/*/libdcp.so "$prefix"/bin/*; do
    [ -e "$file" ] || continue
    if ldd "$file" | grep -iE 'lib(mpi|open-rte|open-pal)|hdf5_openmpi|not found'; then
        echo "FAILED: ${file#"$prefix"/} needs it"
        exit 1
    fi
    case $file in */bin/*) "$file" --version >/dev/null ;; esac
done
"$DCP_SOURCE/tests/package/users.sh" "$prefix"
