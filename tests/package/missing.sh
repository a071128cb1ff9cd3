#!/usr/bin/env bash
# missing.sh: what a build needs and this machine lacks is named at once, each with its package of Debian; and an HDF5 of
# another MPI is told from ours.
set -euo pipefail
dir=$(mktemp -d "${TMPDIR:-/tmp}/package_missing.XXXXXX")
trap 'rm -rf "$dir"' EXIT
fail() { cat "$dir/said" && echo "FAILED: $*" && exit 1; }
said() { tr -s ' \n' ' ' <"$dir/said" | grep -qE "$1"; }
libraries=(ISAL JANSSON URING OPENBLAS CMOCKA)

# configure PC_FOLDER OPTIONS...: knows by pkg-config what is in PC_FOLDER. OFF: not found, and not looked for again.
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

# An HDF5 of an MPI that is not ours, in pkg-config's words.
echo | cc -shared -x c - -Wl,-soname,libmpich.so.1 -o "$dir/libmpich.so.1"
echo | cc -shared -x c - -x none -Wl,--no-as-needed "$dir/libmpich.so.1" -o "$dir/libhdf5.so"
printf 'Name: HDF5\nDescription: of another MPI\nVersion: 1.10\nLibs: -L%s -lhdf5\n' "$dir" >"$dir/hdf5.pc"
configure "$dir"
said "HDF5: $dir/libhdf5.so needs libmpich.so.1, and MPI is libmpi" || fail "it takes an HDF5 of another MPI"
