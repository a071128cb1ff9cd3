#!/usr/bin/env bash
# builds.sh DIR [PART...]: builds with various compilers, libraries and options, in systems of Debian 12 (bookworm) and
# 13 (trixie) that debootstrap makes in DIR. Each build runs the tests with label `quick`, a training of three steps on
# two ranks, and a save by dcp-bench. PARTs (default: all):
#   gcc12           Debian 12: GCC 12, Open MPI 4.1, HDF5 1.10, oneDNN 2.6; what the others' files are compared with
#   clang14         Debian 12, clang 14                     clang19         Debian 12, clang 19
#   mpich           Debian 12, MPICH and its HDF5           hdf5            Debian 12, HDF5 1.14 in HDF5_ROOT, from source
#   no-trainer      -DDCP_TRAINER=OFF                       static          -DBUILD_SHARED_LIBS=OFF
#   no-mpi          -DDCP_MPI=OFF
#   gcc14           Debian 13: GCC 14, Open MPI 5, HDF5 1.14, oneDNN 3
#   gcc14-clang19   Debian 13, clang 19
#   arm64           Debian 12, GCC 12 for arm64 without the trainer, run by qemu
# Prints one line per part: whether it builds and passes, and whether its files equal those of gcc12. The output is in
# DIR/PART.log. TESTS=REGEX runs only these tests, TESTS= none. Systems and builds stay in DIR, and are used again.
# Exit: 0 all build and pass; 1 something failed; 77 skipped: requires root, debootstrap and a mirror of Debian.
set -euo pipefail

if [ $# -lt 1 ]; then
    sed -n '2,18s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
fi
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mkdir -p -- "$1"
dir=$(cd "$1" && pwd)
shift
all=(gcc12 clang14 clang19 mpich hdf5 no-trainer static no-mpi gcc14 gcc14-clang19 arm64)
[ $# -gt 0 ] || set -- "${all[@]}"
. "$source/tests/systems/systems_lib.sh"

common="ccache gcc g++ gfortran libc6-dev cmake make ninja-build pkg-config libopenmpi-dev openmpi-bin libhdf5-openmpi-dev
    libhdf5-dev libisal-dev libjansson-dev liburing-dev libdnnl-dev libopenblas-serial-dev libcmocka-dev
    hdf5-tools python3 python3-h5py python3-numpy git strace iproute2"
arm_libraries=libc6-dev,libopenmpi-dev,libhdf5-openmpi-dev,libisal-dev,libjansson-dev,liburing-dev,libcmocka-dev

# describe PART: sets its suite, additional packages, a command that prepares it, CMake's options,
# and the launcher of two ranks.
describe() {
    suite=bookworm packages= prepare= options= launch="mpirun --oversubscribe -n 2" with_trainer=yes
    case $1 in
    gcc12) ;;
    clang14) packages="clang-14 libomp-14-dev" options="-DCMAKE_C_COMPILER=clang-14" ;;
    clang19) packages="clang-19 libomp-19-dev" options="-DCMAKE_C_COMPILER=clang-19" ;;
    mpich)
        packages="mpich libmpich-dev libhdf5-mpich-dev" launch="mpiexec.mpich -n 2"
        options="-DMPI_C_COMPILER=mpicc.mpich -DMPIEXEC_EXECUTABLE=/usr/bin/mpiexec.mpich"
        ;;
    hdf5) prepare="tests/systems/upstream_hdf5.sh /opt/hdf5" options="-DHDF5_ROOT=/opt/hdf5" ;;
    no-trainer) options="-DDCP_TRAINER=OFF" with_trainer= ;;
    static) options="-DBUILD_SHARED_LIBS=OFF" ;;
    no-mpi) options="-DDCP_MPI=OFF" launch= ;;
    gcc14) suite=trixie ;;
    gcc14-clang19) suite=trixie packages="clang-19 libomp-19-dev" options="-DCMAKE_C_COMPILER=clang-19" ;;
    arm64)
        packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static mmdebstrap" launch= with_trainer=
        prepare="[ -e /arm64/usr ] || mmdebstrap --variant=extract --arch=arm64 --include=$arm_libraries bookworm /arm64"
        options="-DDCP_TRAINER=OFF -DCMAKE_TOOLCHAIN_FILE=\$PWD/tests/systems/arm64.cmake"
        ;;
    *) echo "builds.sh: no part $1; there are ${all[*]}" >&2 && exit 2 ;;
    esac
}

# said COMMAND: runs COMMAND in the system, with its output in the part's log.
said() {
    echo "== $1" >>"$log"
    within root "export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; $1" >>"$log" 2>&1 </dev/null
}

make_ready() {
    local part=builds
    system=$dir/$suite-$part
    if [ ! -e "$system/root/libdcp" ]; then
        make_base
        fresh_system root
    fi
    git -C "$system/root/libdcp" fetch -q "$source" HEAD
    git -C "$system/root/libdcp" reset -q --hard FETCH_HEAD
    said "export DEBIAN_FRONTEND=noninteractive; apt-get update -q && apt-get install -q -y --no-install-recommends ${common//$'\n'/ } $packages" &&
        said "${prepare:-true}"
}

build() {
    local pkg_config=
    [ "$1" != arm64 ] || pkg_config="export PKG_CONFIG_LIBDIR=/arm64/usr/lib/aarch64-linux-gnu/pkgconfig PKG_CONFIG_SYSROOT_DIR=/arm64;"
    targets=quick_tests
    [ -z "${TESTS+set}" ] || targets="programs \$(ninja -C /b/$1 -t targets all | sed -n 's/:.*//p' | grep -xE '${TESTS:-none}' || true)"
    said "$pkg_config cmake -G Ninja -S . -B /b/$1 --fresh -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER_LAUNCHER=ccache \
        -DCMAKE_CXX_COMPILER_LAUNCHER=ccache $options && ninja -C /b/$1 -j2 $targets"
}

# Sets `tests` to ctest's line on the tests that passed.
run_tests() {
    local choice="-L ^quick\$"
    [ "${TESTS-all}" ] || { tests="no tests" && return; }
    [ -z "${TESTS:-}" ] || choice="-R '^($TESTS)'"
    [ "$1" != arm64 ] || choice+=" -LE mpi" # ranks cannot be started under qemu
    local status=0
    said "ctest --test-dir /b/$1 --no-tests=error --output-on-failure -j2 $choice" || status=$?
    tests=$(grep 'tests passed' "$log" | tail -n 1)
    return $status
}

# same WHAT COMMAND: compares the file state.h5 that COMMAND makes in /b/made with that of gcc12.
same() {
    local sum=$dir/$part.$1
    said "rm -rf /b/made && mkdir /b/made && { $2; } && sha256sum \$(find /b/made -name state.h5 | sort | tail -n 1) >/b/made/sum" ||
        { files+=", $1 FAILED" && return 1; }
    cut -d ' ' -f 1 "$system/b/made/sum" >"$sum"
    if [ "$part" = gcc12 ]; then
        files+=", $1 made"
    elif [ ! -e "$dir/gcc12.$1" ]; then
        files+=", $1 not compared: there is none of gcc12"
    elif cmp -s "$sum" "$dir/gcc12.$1"; then
        files+=", $1 same"
    else
        files+=", $1 DIFFERS"
    fi
}

make_files() {
    local run= status=0
    files=
    [ "$part" != arm64 ] || run="qemu-aarch64-static -L /arm64"
    same save "$run /b/$part/bin/dcp-bench save /b/made --layers 2 --hidden 64 --vocab 1000" || status=1
    [ -z "$with_trainer" ] || same training "$launch /b/$part/bin/dcp-train examples/configs/quickstart.json \
        data.path=LICENSE checkpoint.dir=/b/made max_steps=3" || status=1
    return $status
}

failed=0
for part; do
    describe "$part"
    log=$dir/$part.log
    : >"$log"
    tests= files=
    if ! make_ready; then
        echo "$part: NOT READY: $(tail -n 1 "$log")" && failed=1
    elif ! build "$part"; then
        echo "$part: DOES NOT BUILD: $(grep -m 1 -E 'error|Error' "$log")" && failed=1
    else
        run_tests "$part" || failed=1
        make_files || failed=1
        echo "$part: builds with $(grep -c 'warning: .*\[-W' "$log" || true) warnings; $tests$files"
    fi
done
exit $failed
