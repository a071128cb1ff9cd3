#!/usr/bin/env bash
# static.sh BUILD_DIR [LAUNCHER...]: builds with -DBUILD_SHARED_LIBS=OFF in BUILD_DIR, which later
# runs use again. The build has neither dcp-train nor tests, and requires none of their libraries.
# Programs in C, C++ and Fortran work with what it installs, even after the installation is moved.
# If libraries are missing, find_package names them.
set -euo pipefail
build=$1
prefix=$(mktemp -d "${TMPDIR:-/tmp}/package_static.XXXXXX")
trap 'rm -rf "$prefix"' EXIT
fail() { echo "FAILED: $*" && exit 1; }
{
    cmake -S "$DCP_SOURCE" -B "$build" -G Ninja -DBUILD_SHARED_LIBS=OFF -DDCP_TRAINER=OFF -DBUILD_TESTING=OFF \
        -DCMAKE_BUILD_TYPE=Debug &&
        cmake --build "$build" -j2 &&
        cmake --install "$build" --prefix "$prefix/made"
} >"$prefix/log" 2>&1 || { tail -40 "$prefix/log" && exit 1; }
mv "$prefix/made" "$prefix/moved"
[ -z "$(find "$prefix/moved" -name 'libdcp.so*' -o -name 'dcp-train*')" ] || fail "more is installed than was asked for"
! grep -qE '(OPENBLAS|CMOCKA)_(FOUND:INTERNAL=1|LIBRARY)|DNNL_LIBRARY' "$build/CMakeCache.txt" ||
    fail "it looked for libraries that it does not need"
"$DCP_SOURCE/tests/package/users.sh" "$prefix/moved" "${@:2}"


# OFF makes CMake treat a library as missing without searching for it.
! PKG_CONFIG_LIBDIR=/nowhere cmake -S "$DCP_SOURCE/tests/package/users" -B "$prefix/user" -DUSER_LANGUAGE=C \
    -DUSER_SOURCE=user.c -DCMAKE_PREFIX_PATH="$prefix/moved" -DCMAKE_DISABLE_FIND_PACKAGE_HDF5=ON \
    -DDCP_ISAL_LIBRARY=OFF -DDCP_URING_LIBRARY=OFF >"$prefix/log" 2>&1 || fail "it is found where libraries are missing"
tr -s ' \n' ' ' <"$prefix/log" | grep -qE "HDF5 \(Debian: [a-z0-9-]+\), ISA-L \(Debian: libisal-dev\), liburing \(" ||
    { cat "$prefix/log" && fail "what is missing is not named"; }
