#!/usr/bin/env bash
# missing.sh: if libraries that a build requires are missing, CMake names all of them at once, each
# with its Debian package; an HDF5 of another MPI is recognized.
set -euo pipefail
dir=$(mktemp -d "${TMPDIR:-/tmp}/package_missing.XXXXXX")
trap 'rm -rf "$dir"' EXIT
fail() { cat "$dir/said" && echo "FAILED: $*" && exit 1; }
said() { tr -s ' \n' ' ' <"$dir/said" | grep -qE "$1"; }
libraries=(ISAL JANSSON URING OPENBLAS CMOCKA)

# configure PC_FOLDER OPTIONS...: configures with the packages that pkg-config finds in PC_FOLDER.
# OFF makes CMake treat a library as missing without searching for it.
configure() {
    ! PKG_CONFIG_LIBDIR=$1 cmake -S "$DCP_SOURCE" -B "$dir/build" --fresh -G Ninja -DDNNL_LIBRARY=OFF \
        "${libraries[@]/#/-DDCP_}" -DCMAKE_DISABLE_FIND_PACKAGE_HDF5=ON -DCMAKE_DISABLE_FIND_PACKAGE_OpenMP=ON \
        "${@:2}" >"$dir/said" 2>&1 || fail "it configures without all of its libraries"
}
libraries=("${libraries[@]/%/_LIBRARY=OFF}")

configure /nowhere -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON -DDCP_PYTHON=OFF
for name in MPI HDF5 ISA-L Jansson liburing OpenBLAS oneDNN "OpenMP for [A-Za-z]+ [0-9]+" cmocka h5py; do
    said "$name[^:]*\(Debian: [a-z0-9-]+\)" || fail "$name is not named with a package"
done
said "apt-get install( [a-z0-9-]+){10} " || fail "no command for all ten"

configure /nowhere -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON -DDCP_TRAINER=OFF -DBUILD_TESTING=OFF
said "apt-get install( [a-z0-9-]+){5} " || fail "not five packages without the trainer and tests"

# A stand-in for an HDF5 of another MPI, and its pkg-config file.
echo | cc -shared -x c - -Wl,-soname,libmpich.so.1 -o "$dir/libmpich.so.1"
echo | cc -shared -x c - -x none -Wl,--no-as-needed "$dir/libmpich.so.1" -o "$dir/libhdf5.so"
printf 'Name: HDF5\nDescription: of another MPI\nVersion: 1.10\nLibs: -L%s -lhdf5\n' "$dir" >"$dir/hdf5.pc"
configure "$dir"
said "HDF5: $dir/libhdf5.so needs libmpich.so.1, and MPI is libmpi" || fail "it takes an HDF5 of another MPI"
