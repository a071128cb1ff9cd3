#!/usr/bin/env bash
# users.sh PREFIX [LAUNCHER...]: programs in C, C++ and Fortran are built with the installation in
# PREFIX, by find_package(dcp 1.0) and by pkg-config, and run, by LAUNCHER if one is given. Their
# steps are intact, and h5py and numpy read Fortran's array with the right values.
set -euo pipefail
prefix=$1 launch=("${@:2}")
tests=$DCP_SOURCE/tests/package/users example=$DCP_SOURCE/examples/fortran
dir=$(mktemp -d "${TMPDIR:-/tmp}/package_users.XXXXXX")
trap 'rm -rf "$dir"' EXIT
strict="-Wall -Wextra -Wpedantic -Wconversion -Werror"

PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name dcp.pc)")
export PKG_CONFIG_PATH
libdir=$(pkg-config --variable=libdir dcp)
module=$(pkg-config --variable=fortran_module dcp)
read -ra flags <<<"$(pkg-config --cflags --libs "dcp >= 1.0") -Wl,-rpath,$libdir"
mpi=() fortran=(gfortran -DWITHOUT_MPI)
[ "$(pkg-config --variable=mpi dcp)" = OFF ] || mpi=(-DUSE_MPI=1) fortran=(mpifort)

[ -e "$prefix/share/man/man3/dcp_save_async.3" ] || { echo "FAILED: no man page of dcp_save_async"; exit 1; }

try() { # PROGRAM SAYS
    local said
    said=$("${launch[@]}" "$1" "$dir/ckpt")
    [ "$said" = "$2" ] || { echo "FAILED: $1 said: $said"; exit 1; }
    "$prefix/bin/dcp-inspect" verify "$dir/ckpt" >/dev/null
    if [ "$2" != "${2#Fortran}" ]; then # the second step of the Fortran program is sharded
        [ -e "$dir/ckpt/step-00000002/shard-00000-of-0000$ranks.h5" ]
        "$DCP_PYTHON" "$tests/../fortran_array.py" "$dir/ckpt/step-00000001/state.h5"
    fi
    rm -r "$dir/ckpt"
}
built() { # NAME SOURCE_DIR OPTIONS...: builds by CMake
    cmake -S "$2" -B "$dir/$1" -DCMAKE_PREFIX_PATH="$prefix" "${@:3}" >"$dir/log" 2>&1 &&
        cmake --build "$dir/$1" >>"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
}
ranks=1
[ ${#launch[@]} -eq 0 ] || ranks=${launch[-1]}

built by-c "$tests" -DUSER_LANGUAGE=C -DUSER_SOURCE=user.c "-DCMAKE_C_FLAGS=$strict"
try "$dir/by-c/user" "C on $ranks"
cc -std=c11 "${mpi[@]}" -o "$dir/c" "$tests/user.c" "${flags[@]}"
try "$dir/c" "C on $ranks"

built by-cxx "$tests" -DUSER_LANGUAGE=CXX -DUSER_SOURCE=user.cpp "-DCMAKE_CXX_FLAGS=-std=c++11 $strict"
try "$dir/by-cxx/user" "C++ on $ranks"
c++ -std=c++17 "${mpi[@]}" -o "$dir/cxx" "$tests/user.cpp" "${flags[@]}"
try "$dir/cxx" "C++ on $ranks"

built by-fortran "$example" "-DCMAKE_Fortran_FLAGS=-std=f2018 -Wall"
try "$dir/by-fortran/columns" "Fortran on $ranks, back at step 2"
(cd "$dir" && "${fortran[@]}" -o fortran "$module" "$example/columns.F90" "${flags[@]}")
try "$dir/fortran" "Fortran on $ranks, back at step 2"
(cd "$dir" && ! ./fortran --help >said 2>&1 && grep -q "usage: columns DIR" said && [ ! -e ./--help ])
cc -o "$dir/constants" "$tests/constants.c" "${flags[@]}"
"$dir/constants" >"$dir/constants.f90"
(cd "$dir" && gfortran -ffree-line-length-none -o compare "$module" constants.f90 "${flags[@]}")
"$dir/compare"
