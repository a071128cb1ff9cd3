#!/usr/bin/env bash
# Makes a Debian 12 machine ready to build, test and run this project: installs the packages that
# are missing where it runs as root, otherwise prints the one command to run and exits 2.
# Quick where nothing is missing. On other systems it says so and leaves it to CMake. What single
# tests need besides is installed where that works, and else told once: those tests are skipped.
set -euo pipefail

packages=(
    gcc libc6-dev cmake make ninja-build pkg-config git     # build
    libopenmpi-dev openmpi-bin libhdf5-openmpi-dev          # what libdcp stands on
    libisal-dev libjansson-dev liburing-dev
    libhdf5-dev                                             # the same without MPI: -DDCP_MPI=OFF
    libdnnl-dev libopenblas-serial-dev                      # matrix products
    libpcre2-dev libutf8proc-dev                            # tokenizers
    libcmocka-dev hdf5-tools python3 python3-h5py python3-numpy fio # tests, quickstart, benchmark
    g++ gfortran                                            # tests of the installed interfaces
    mandoc groff-base                                       # checks the man pages in tests/cli
    strace                                                  # fails system calls in tests/crash
    gdb                                                     # stacks of ranks that hang
    xfsprogs btrfs-progs                                    # images of file systems for tests/mpi
)

# Of these each may be missing. A server's package starts it where systemd runs, so it is left there.
optional=(
    iproute2                                # tests hosts_*
    munge slurmctld slurmd slurm-client     # tests slurm_*
    libfuse3-dev                            # tests crash_filesystem_fuse_*
    glusterfs-server glusterfs-client       # test crash_filesystem_glusterfs
)
tried=${DCP_SETUP_TRIED:-/var/cache/dcp-setup} # those that could not be installed

if ! command -v dpkg-query >/dev/null; then
    echo "setup: not a Debian system; CMake will say which of these is missing: ${packages[*]}" >&2
    exit 0
fi

is_installed() {
    local status
    status=$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) || status=
    [ "$status" = installed ]
}

install() { # NAMES...
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y -o Acquire::Retries=3 --no-install-recommends "$@" >&2
}

missing=() extra=()
for package in "${packages[@]}"; do
    is_installed "$package" || missing+=("$package")
done
[ -d /run/systemd/system ] && optional=(iproute2 libfuse3-dev)
for package in "${optional[@]}"; do
    is_installed "$package" || grep -qsx "$package" "$tried" || extra+=("$package")
done

if [ "$(id -u)" -ne 0 ]; then
    [ ${#missing[@]} -gt 0 ] || exit 0
    echo "setup: packages are missing. Run this, then start again:" >&2
    echo "    sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 2
fi
[ $((${#missing[@]} + ${#extra[@]})) -gt 0 ] || exit 0
# Lists that can't be updated are no reason to stop: those that are there may do.
apt-get update -q -o Acquire::Retries=3 >&2 || true
if [ ${#missing[@]} -gt 0 ]; then
    echo "setup: installing ${missing[*]}" >&2
    install "${missing[@]}"
fi
for package in "${extra[@]}"; do
    echo "setup: installing $package, which some tests need" >&2
    if ! install "$package"; then
        echo "setup: there is no $package: tests that need it are skipped" >&2
        echo "$package" >>"$tried" || true # not again until that file is removed
    fi
done
