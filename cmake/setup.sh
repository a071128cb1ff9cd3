#!/usr/bin/env bash
# Makes a Debian 12 machine ready to build, test and run this project: installs the packages that
# are missing where it runs as root, otherwise prints the one command to run and exits 2.
# Quick where nothing is missing. On other systems it says so and leaves it to CMake.
set -euo pipefail

packages=(
    gcc libc6-dev cmake make ninja-build pkg-config git     # build
    libopenmpi-dev openmpi-bin libhdf5-openmpi-dev          # what libdcp stands on
    libisal-dev libjansson-dev liburing-dev
    libdnnl-dev libopenblas-serial-dev                      # matrix products
    libcmocka-dev hdf5-tools python3 python3-h5py python3-numpy fio # tests, quickstart, benchmark
    mandoc                                                  # checks the man pages in tests/cli
    strace                                                  # fails system calls in tests/crash
    xfsprogs btrfs-progs                                    # images of file systems for tests/mpi
)

if ! command -v dpkg-query >/dev/null; then
    echo "setup: not a Debian system; CMake will say which of these is missing: ${packages[*]}" >&2
    exit 0
fi

missing=()
for package in "${packages[@]}"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || status=
    [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "setup: packages are missing. Run this, then start again:" >&2
    echo "    sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 2
fi
echo "setup: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >&2
apt-get install -q -y --no-install-recommends "${missing[@]}" >&2
