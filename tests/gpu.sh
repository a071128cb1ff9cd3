#!/usr/bin/env bash
# tests/gpu.sh [--build-only] [CMAKE OPTION...]: everything that needs a GPU, in one run of at most
# nine minutes, without a network. Builds with CUDA into build-gpu/, runs the tests and benchmarks on
# the device, and writes build-gpu/report.txt. Missing libraries can be brought from another machine, on
# which cmake/carry.sh packs them into .vendor/. Without Open MPI, or if mpirun does not start ranks,
# builds and runs one process; if libraries for that are missing as well, only the kernels. The output
# says what is left out.
#
# Exit: 0 all passed; 1 something failed, see the report; 77 no GPU on this machine, or no nvcc.
# --build-only: builds everything and stops; needs no GPU.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build_only=
[ "${1-}" = --build-only ] && build_only=yes && shift
if [ -z "$build_only" ] && ! nvidia-smi -L 2>/dev/null | grep -q . && ! ls /dev/nvidia[0-9]* >/dev/null 2>&1; then
    echo "gpu.sh: no GPU here; --build-only builds without one" >&2
    exit 77
fi
PATH=$PATH:/usr/local/cuda/bin
if ! command -v nvcc >/dev/null; then
    echo "gpu.sh: no nvcc in PATH or /usr/local/cuda/bin: the CUDA toolkit is missing" >&2
    exit 77
fi
cores=$(env -u OMP_NUM_THREADS nproc) # the next line sets OMP_NUM_THREADS to 1, which nproc would print
. cmake/mpi-env.sh

build=build-gpu
report=$build/report.txt
started=$SECONDS
most_s=530 # less than nine minutes: the rest is for ending processes
[ -z "$build_only" ] || most_s=3600
failed=0
mkdir -p "$build"

say() { echo "$*" | tee -a "$report"; }
indent() { sed -e 's/^/    /' -e '$a\'; }

# left: prints the seconds that remain of the whole time. within SECONDS KEEP: prints SECONDS, or
# fewer, so that KEEP seconds remain for later parts.
left() { echo $((most_s - (SECONDS - started))); }
within() {
    local most=$(($(left) - $2))
    [ "$most" -le "$1" ] || most=$1
    echo $((most > 20 ? most : 20))
}

# part SECONDS NAME COMMAND...: runs COMMAND for at most SECONDS and the remaining time. Prints the
# last lines of its output, and more of them if it fails.
part() {
    local budget=$1 name=$2 log=$build/part.log begin=$SECONDS status
    shift 2
    [ "$budget" -le "$(left)" ] || budget=$(left)
    if [ "$budget" -le 0 ]; then
        say "LEFT OUT  $name: no time is left"
        failed=1
        return 1
    fi
    timeout -k 5 "$budget" "$@" >"$log" 2>&1
    status=$?
    case $status in
    0) say "passed    $name ($((SECONDS - begin)) s)" ;;
    77) say "left out  $name: $(sed '/^-----/,$d' "$log" | tail -n 1)" ;; # without the text that mpirun adds
    124 | 137) say "FAILED    $name: not done after $budget s" ;;
    *) say "FAILED    $name (exit $status)" ;;
    esac
    case $status in
    0) tail -n "${keep_lines:-3}" "$log" | indent | tee -a "$report" ;;
    77) [ -z "${keep_lines-}" ] || tail -n "$keep_lines" "$log" | indent | tee -a "$report" ;;
    *)
        failed=1
        tail -n 60 "$log" | indent | tee -a "$report"
        ;;
    esac
    return $status
}

describe() {
    echo "date      $(date -u +%Y-%m-%dT%H:%MZ)"
    echo "commit    $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
    echo "nvcc      $(nvcc --version | sed -n 's/.*release //p')"
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null |
        sed 's/^/device    /'
    echo
}

# The architecture of this GPU; without a GPU, CMake's default ones.
architectures=(-DCMAKE_CUDA_ARCHITECTURES=native)
[ -z "$build_only" ] || architectures=()
configure() {
    local generator=()
    command -v ninja >/dev/null && generator=(-G Ninja)
    cmake -B "$build/$1" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DDCP_CUDA=ON \
        "${architectures[@]}" "${@:2}" >"$build/configure-$1.log" 2>&1
}

# Containers may lack something that mpirun requires, for example a loopback interface.
ranks_start() {
    ! command -v mpirun >/dev/null || # if it is missing, CMake reports that
        timeout 30 mpirun --oversubscribe -n 2 true >"$build/part.log" 2>&1
}

# Uses the libraries that another machine packed (cmake/carry.sh), if they run on this one.
bring_libraries() {
    local packed=.vendor/libraries.tar.gz to=$build/libraries
    [ -f "$packed" ] || return 0
    if [ ! "$to/env.sh" -nt "$packed" ]; then
        rm -rf "$to" "$build/all" "$build/alone" # their caches name libraries of an earlier package
        mkdir "$to"
        if ! tar -xzmf "$packed" -C "$to" 2>"$build/part.log"; then
            say "left out  $packed, which tar does not unpack: $(tail -n 1 "$build/part.log")"
            rm -rf "$to"
            return 0
        fi
    fi
    . "$to/env.sh" 2>"$build/part.log" || say "left out  $packed: $(cat "$build/part.log")"
}

describe | tee "$report"
bring_libraries
# why_not TREE: prints the first line of the error that stopped TREE's configuration
why_not() {
    grep -m 1 -A 3 'CMake Error' "$build/configure-$1.log" | grep -v '^$\|CMake Error' | head -n 1 | sed 's/^ *//'
}
# whole is mpi: with MPI; alone: a single process; empty: only the kernels
without=
ranks_start || without="mpirun does not start two ranks: $(grep -m 1 '[a-z]' "$build/part.log")"
if [ -z "$without" ] && configure all "$@"; then
    tree=$build/all whole=mpi
elif without=${without:-$(why_not all)} && configure alone -DDCP_MPI=OFF "$@"; then
    tree=$build/alone whole=alone
    say "left out  what needs several ranks: $without"
    export DCP_TEST_RANKS=1
else
    whole=
    tree=$build/kernels
    say "left out  trainer and library: $without; without MPI: $(why_not alone)"
    if ! configure kernels -DDCP_KERNELS_ALONE=ON "$@"; then
        say "FAILED    configuration of the kernels alone"
        tail -n 30 "$build/configure-kernels.log" | tee -a "$report"
        exit 1
    fi
fi
# build SECONDS NAME TARGET...: builds the targets as a part.
build() {
    local most=$1
    [ -z "$build_only" ] || most=$most_s
    part "$most" "build of $2" cmake --build "$tree" -j "$cores" --target "${@:3}"
}
build 240 "the kernels and their tests" kernel_conformance || exit 1 # required by all parts
tests=(train_compare device_cuda snapshot_rate)
[ "$whole" = alone ] || tests+=(model_golden)
if [ -n "$whole" ] && ! build 120 "library and trainer" dcp-train dcp-inspect "${tests[@]}"; then
    [ -z "$build_only" ] || exit 1
    whole= # the kernels can be tested nevertheless
fi
if [ -n "$build_only" ]; then
    echo "gpu.sh: built in $tree; nothing was run"
    exit 0
fi

suite=$tree/tests/bin/kernel_conformance
[ -x "$suite" ] || suite=$tree/bin/kernel_conformance
# sanitize COMMAND...: exits with 77, and the reason as the last line, if compute-sanitizer does not
# support the device
sanitize() {
    local said status
    said=$(compute-sanitizer --error-exitcode 1 --launch-timeout 60 "$@" 2>&1)
    status=$?
    echo "$said"
    [ $status -eq 0 ] || ! grep -m 1 -iE '^=+ .*(device|gpu).*(not supported|unsupported)' <<<"$said" || exit 77
    exit $status
}
# sanitized SECONDS NAME COMMAND...: runs COMMAND under compute-sanitizer as a part.
sanitized() {
    if command -v compute-sanitizer >/dev/null; then
        part "$1" "$2 under compute-sanitizer" bash -c "$(declare -f sanitize); sanitize \"\$@\"" - "${@:3}"
    else
        say "left out  $2 under compute-sanitizer: it is not installed"
    fi
}

# Correctness comes first, in at most 335 s, then speed, and slow parts last.
part 45 "kernels conform to their references" "$suite" cuda || failed=1 # runs even if it finds no GPU

if [ -n "$whole" ]; then
    export DCP_BIN=$PWD/$tree/bin DCP_SOURCE=$PWD TRAIN_COMPARE=$PWD/$tree/tests/bin/train_compare
    export DCP_TEST_DEVICE=cuda OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
    two_ranks=()
    [ "$whole" = alone ] || two_ranks=(mpirun --oversubscribe -n 2)
    part 25 "snapshots from device memory and back" "${two_ranks[@]}" "$tree/tests/bin/device_cuda"
    part 80 "training agrees with transformers, in fp32 and bf16" tests/trainer/train_golden.py
    [ "$whole" = alone ] || part 20 "models agree with transformers tensor by tensor, logits too" "$tree/tests/bin/model_golden" cuda
    part 35 "from the CPU to the GPU and back, and a GPU that is too small" tests/trainer/train_moved.py
    [ "$whole" = alone ] || part 70 "the same bits on 1, 2 and 4 ranks of one GPU, and through kills" tests/trainer/train_same_bits.py
    part 40 "a killed rank ends the others, and the saved steps stay" tests/trainer/train_killed.py

    # Steps of 10 GB go to memory if it suffices, so no disk is measured.
    room=$(df --output=avail -B 1G /dev/shm 2>/dev/null | tail -n 1)
    steps_dir=$(mktemp -d -p "$([ "${room:-0}" -ge 45 ] && echo /dev/shm || echo "$build")")
    trap 'rm -rf "$steps_dir"' EXIT
    limit=$(within 140 90)
    keep_lines=12 part $((limit + 5)) "training beside PyTorch FSDP2" tests/bench/gpu/train.py "$steps_dir" --limit "$limit"
    keep_lines=10 part 40 "copies of 10 GB from the GPU" "$tree/tests/bin/snapshot_rate" "$steps_dir/rate"
    rm -rf "$steps_dir/rate"
    limit=$(within 110 50)
    keep_lines=24 part $((limit + 5)) "training beside a snapshot of 10 GB" tests/bench/gpu/snapshots.py "$steps_dir" --limit "$limit"
fi

sanitized "$(within 150 60)" kernels "$suite" cuda
[ -z "$whole" ] || sanitized 60 snapshots "$tree/tests/bin/device_cuda"

say ""
say "$([ $failed = 0 ] && echo "all passed" || echo "something FAILED") in $((SECONDS - started)) s; $report"
exit $failed
