#!/usr/bin/env bash
# Prepares a Debian machine: run as root, it installs the missing packages; otherwise it prints the
# command that installs just these, and exits with status 2. Takes no time if nothing is missing. On
# other systems it says so, and leaves the checks to CMake.
#   cmake/setup.sh            what building the programs and examples/quickstart.sh need
#   cmake/setup.sh --tests    also what the tests and benchmarks need
# Packages for single tests are installed if possible; otherwise that is reported once, and those tests
# are skipped. The output of apt-get goes to /var/log/dcp-setup.log (DCP_SETUP_LOG: another file).
set -euo pipefail

packages=(
    gcc libc6-dev cmake make ninja-build pkg-config         # build
    libopenmpi-dev openmpi-bin libhdf5-openmpi-dev          # the libraries of libdcp
    libisal-dev libjansson-dev liburing-dev
    libdnnl-dev libopenblas-serial-dev                      # matrix products
    python3 python3-h5py python3-numpy                      # man pages, quickstart
)
for_tests=(
    git python3-venv libcmocka-dev hdf5-tools
    libhdf5-dev                             # the library without MPI: -DDCP_MPI=OFF
    g++ gfortran                            # tests of the installed interfaces
    mandoc groff-base                       # checks the man pages in tests/cli
    strace                                  # fails system calls in tests/crash
    gdb                                     # stacks of ranks that hang
    fio                                     # the reference of benchmarks
    xfsprogs btrfs-progs                    # images of file systems for tests/mpi
)
# Any of these may be missing. Under systemd, a server's package would start the server, so it is not installed.
optional=(
    iproute2                                # tests hosts_*
    munge slurmctld slurmd slurm-client     # tests slurm_*
    libfuse3-dev                            # tests crash_filesystem_fuse_*
    glusterfs-server glusterfs-client       # test crash_filesystem_glusterfs
    clang-format-14 cppcheck                # tests format and analysis
)
[ -d /run/systemd/system ] && optional=(iproute2 libfuse3-dev clang-format-14 cppcheck)

case $#:${1-} in
0:) optional=() ;;
1:--tests) packages+=("${for_tests[@]}") ;;
1:--help | 1:-h) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" && exit 0 ;;
*) echo "setup: only --tests and --help are known, not: $*" >&2 && exit 2 ;;
esac
tried=${DCP_SETUP_TRIED:-/var/cache/dcp-setup} # packages that could not be installed
log=${DCP_SETUP_LOG:-/var/log/dcp-setup.log}

if ! command -v dpkg-query >/dev/null; then
    echo "setup: not a Debian system; CMake will report which of these are missing: ${packages[*]}" >&2
    exit 0
fi

is_installed() {
    local status
    status=$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) || status=
    [ "$status" = installed ]
}

run_apt() { # COMMAND ARGUMENTS...
    DEBIAN_FRONTEND=noninteractive apt-get "$1" -q -o Acquire::Retries=3 "${@:2}" >>"$log" 2>&1
}

install() { # NAMES...
    run_apt install -y --no-install-recommends "$@"
}

missing=() extra=()
for package in "${packages[@]}"; do
    is_installed "$package" || missing+=("$package")
done
for package in "${optional[@]}"; do
    is_installed "$package" || grep -qsx "$package" "$tried" || extra+=("$package")
done

if [ "$(id -u)" -ne 0 ]; then
    [ ${#missing[@]} -gt 0 ] || exit 0
    echo "setup: packages are missing. Install them with this command, then try again:" >&2
    echo "    sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 2
fi
[ $((${#missing[@]} + ${#extra[@]})) -gt 0 ] || exit 0
echo "setup: installing $((${#missing[@]} + ${#extra[@]})) packages and what they need; the log is $log" >&2
: >"$log"
# Continues if the lists cannot be updated: the existing ones may be good enough.
run_apt update || true
if [ ${#missing[@]} -gt 0 ]; then
    echo "setup: ${missing[*]}" >&2
    install "${missing[@]}" || {
        status=$?
        echo "setup: apt-get failed; the end of $log:" >&2
        tail -n 20 "$log" >&2
        exit $status
    }
fi
for package in "${extra[@]}"; do
    echo "setup: $package, which some tests need" >&2
    if ! install "$package"; then
        echo "setup: $package cannot be installed: tests that need it are skipped" >&2
        echo "$package" >>"$tried" || true # not tried again until that file is removed
    fi
done
