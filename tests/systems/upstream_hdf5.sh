#!/usr/bin/env bash
# upstream_hdf5.sh PREFIX: builds HDF5 of Debian 13's source package by upstream's own CMake files,
# for the installed MPI.
set -euo pipefail
[ ! -e "$1/lib/libhdf5.so" ] || exit 0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mirror=$(sed -n 's/^deb \([^ ]*\) .*/\1/p' /etc/apt/sources.list | head -n 1) # as debootstrap has written it
echo "deb-src $mirror trixie main" >/etc/apt/sources.list.d/trixie-src.list
apt-get update -q
apt-get install -q -y --no-install-recommends dpkg-dev
cd "$dir"
apt-get source -q hdf5
cmake -G Ninja -S hdf5-*/ -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$1" -DHDF5_ENABLE_PARALLEL=ON \
    -DBUILD_STATIC_LIBS=OFF -DBUILD_TESTING=OFF -DHDF5_BUILD_TOOLS=OFF -DHDF5_BUILD_EXAMPLES=OFF -DHDF5_BUILD_HL_LIB=OFF \
    -DHDF5_ENABLE_Z_LIB_SUPPORT=OFF -DHDF5_ENABLE_SZIP_SUPPORT=OFF
ninja -C build install
