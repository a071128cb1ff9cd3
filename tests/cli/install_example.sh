#!/usr/bin/env bash
# The installed package works without the source tree: the example is built against it in another
# folder, by CMake and by pkg-config, and gives one checksum and one file on any numbers of ranks.
# The README's program is built in the same way; its second run continues the first one.
#   install_example.sh BUILD_DIR MPIRUN...
set -euo pipefail
build=$1
mpirun=("${@:2}")
dir=$(mktemp -d "${TMPDIR:-/tmp}/install_example.XXXXXX")
trap 'rm -rf "$dir"' EXIT

cmake --install "$build" --prefix "$dir/usr" >/dev/null
share=$dir/usr/share/dcp
cp -r "$share/examples/heat2d" "$dir/src"
(. "$share/mpi-env.sh" && [ "$OMP_NUM_THREADS" = 1 ])
[ -x "$share/examples/slurm/train.sh" ] && "$share/examples/tokenize_text.py" --help >/dev/null
"$share/examples/chat_to_records.py" --help >/dev/null
"$share/examples/sample.py" --help >/dev/null
[ -z "$(find "$share" -name quickstart.sh)" ] # would build the source tree
for config in "$share"/examples/configs/*.json; do "$dir/usr/bin/dcp-train" "$config" data.path=x --print-config >/dev/null; done
for program in train run reshard export import inspect bench; do
    "$dir/usr/bin/dcp-$program" --version >/dev/null
    [ -e "$dir/usr/share/man/man1/dcp-$program.1" ]
    bash -c '. "$1" && complete -p "$2"' bash "$dir/usr/share/bash-completion/completions/dcp-$program" \
        "dcp-$program" >/dev/null
done
[ -e "$dir/usr/share/man/man5/dcp-train.json.5" ]
doc=$dir/usr/share/doc/libdcp
cmp "$DCP_SOURCE/LICENSE" "$doc/LICENSE" && [ -e "$doc/docs/format.md" ] && [ -e "$doc/docs/ranks.svg" ]

cmake -S "$dir/src" -B "$dir/build" -DCMAKE_PREFIX_PATH="$dir/usr" >/dev/null
cmake --build "$dir/build" >/dev/null
export PKG_CONFIG_PATH=$(dirname "$(find "$dir/usr" -name dcp.pc)")
libdir=$(pkg-config --variable=libdir dcp)
cc -std=c11 -O2 -o "$dir/heat2d" "$dir/src/heat2d.c" $(pkg-config --cflags --libs dcp) \
    -Wl,-rpath,"$libdir"

# heat2d PROGRAM RANKS CHECKPOINTS STEPS: prints its checksum.
heat2d() { "${mpirun[@]}" -n "$2" "$1" "$dir/$3" "$4" 20 | sed 's/.*checksum //'; }
whole=$(heat2d "$dir/build/heat2d" 1 whole 100)
heat2d "$dir/heat2d" 3 parts 50 >/dev/null
parts=$(heat2d "$dir/build/heat2d" 4 parts 100)
[ -n "$whole" ] && [ "$whole" = "$parts" ] || { echo "checksums: $whole and $parts"; exit 1; }
cmp "$dir/whole/step-00000100/state.h5" "$dir/parts/step-00000100/state.h5"

# The program runs twice, on different numbers of ranks: the second run continues the first one. It
# reports failures.
sed -n '/^```c$/,/^```$/{/^```/d;p}' "$DCP_SOURCE/README.md" >"$dir/readme.c"
cc -std=c11 -Wall -Wextra -Werror -o "$dir/readme" "$dir/readme.c" $(pkg-config --cflags --libs dcp) \
    -Wl,-rpath,"$libdir"
cd "$dir"
[ "$("${mpirun[@]}" -n 2 ./readme)" = "saved up to step 3" ]
[ "$("${mpirun[@]}" -n 3 ./readme)" = "saved up to step 6" ] || { echo "the README's program does not go on"; exit 1; }
usr/bin/dcp-inspect verify ckpt >/dev/null
"$DCP_BIN/dcp-inspect" show ckpt '/model/w[999,62:64]' | grep -q '6.* 6' || { echo "the matrix is not all sixes"; exit 1; }
rm -r ckpt && touch ckpt
! "${mpirun[@]}" -n 2 ./readme >said 2>&1 && grep -q ckpt said || { echo "it fails in silence" && cat said && exit 1; }
