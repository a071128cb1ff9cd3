#!/usr/bin/env bash
# The examples of README.md, docs/building.md and docs/training.md that require only what
# cmake/setup.sh installs, in a separate clone. bare.sh runs this on a system without other
# packages. Prints which example fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. cmake/mpi-env.sh
dir=$(mktemp -d "${TMPDIR:-/tmp}/readme.XXXXXX")
trap 'rm -rf "$dir"' EXIT

try() { # WHAT COMMAND...
    echo "== $1"
    "${@:2}" >"$dir/said" 2>&1 && return
    echo "FAILED: ${*:2}"
    tail -n 20 "$dir/said"
    exit 1
}

try "the programs" cmake/programs.sh "$dir/build.log"
try "ranks by mpirun" mpirun --oversubscribe -n 4 build/bin/dcp-bench save "$dir/bench" --layers 2 --hidden 64 --vocab 1000
try "a large model, looked at only" build/bin/dcp-run -n 4 -- build/bin/dcp-train \
    examples/configs/llama-110m-bytes.json "data.path=/usr/include/*.h" "checkpoint.dir=$dir/llama" --dry-run

try "installed" cmake --install build --prefix "$dir/usr"
PKG_CONFIG_PATH=$(dirname "$(find "$dir/usr" -name dcp.pc)")
export PKG_CONFIG_PATH LD_LIBRARY_PATH=${PKG_CONFIG_PATH%/pkgconfig}
sed -n '/^```c$/,/^```$/{/^```/d;p}' README.md >"$dir/first.c"
compile_first() { cc "$dir/first.c" $(pkg-config --cflags --libs dcp) -o "$dir/first"; }
run_first() ( # EXPECTED
    cd "$dir"
    [ "$(mpirun --oversubscribe -n 4 ./first)" = "$1" ]
)
try "the first program" compile_first
try "its first run" run_first "saved up to step 3"
try "its second run" run_first "saved up to step 6"

configure_heat2d() { cmake -S "$dir/usr/share/dcp/examples/heat2d" -B "$dir/heat2d" -DCMAKE_PREFIX_PATH="$dir/usr"; }
try "heat2d" configure_heat2d
try "heat2d, built" cmake --build "$dir/heat2d"
try "heat2d, run" mpirun --oversubscribe -n 3 "$dir/heat2d/heat2d" "$dir/heat" 40 20

try "without MPI" cmake -B "$dir/serial" -DDCP_MPI=OFF -DBUILD_TESTING=OFF
try "without MPI, built" cmake --build "$dir/serial" -j 2 --target programs
try "without MPI, run" "$dir/serial/bin/dcp-inspect" verify "$dir/ckpt"
