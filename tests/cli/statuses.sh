#!/usr/bin/env bash
# Each exit status of each tool has the meaning that the man pages give.
. "$(dirname "$0")/tools_lib.sh"
step=step-00000003
"$MAKE_CHECKPOINT" "$dir/c" 3
cp -r "$dir/c" "$dir/damaged"
printf x | dd of="$dir/damaged/$step/state.h5" bs=1 seek=100000 conv=notrunc status=none

# limited COMMAND...: files are limited to 100 KiB; writes beyond fail, as on a full disk.
limited() { (
    ulimit -f 100
    "$@"
); }
# beneath KIB COMMAND...: files are limited to KIB, including stdout, but stderr passes through a
# pipe.
beneath() { { (
    ulimit -f "$1"
    shift
    exec "$@"
) 2>&1 >&3 | cat >&2; } 3>&1; }
# full COMMAND...: nothing can be written to stdout.
full() { "$@" >/dev/full; }

gives 0 dcp-reshard "$dir/c" "$dir/s" --layout sharded --world 2
gives 1 dcp-reshard "$dir/damaged" "$dir/none" --layout sharded --world 2
gives 2 dcp-reshard "$dir/c" "$dir/s" --layout sharded --world 2
[ ! -e "$dir/none" ] || fail "a failed dcp-reshard left a directory"
gives 3 limited dcp-reshard "$dir/c" "$dir/none" --layout global
no_leftovers "$dir"
[ ! -e "$dir/none/$step" ] || fail "a failed dcp-reshard left a step"

gives 0 dcp-export "$dir/c" "$dir/hf"
gives 1 dcp-export "$dir/damaged" "$dir/no-hf"
gives 2 dcp-export "$dir/c" "$dir/hf"
gives 3 limited dcp-export "$dir/c" "$dir/no-hf"
gives 3 full dcp-export "$dir/c" "$dir/hf2" --dry-run
says "cannot write to stdout: No space left on device"
[ ! -e "$dir/no-hf" ] || fail "a failed dcp-export left a folder"
no_leftovers "$dir"

gives 0 dcp-export "$dir/c" "$dir/hf-opt" --with-optimizer --max-shard-size 10TB
[ -e "$dir/hf-opt/optimizer.safetensors" ] || fail "no optimizer state"

# If two exports race for one OUT, one of them gets it.
for format in hdf5 safetensors; do
    for try in 1 2 3; do
        status=(0 0) said=$dir/race-$format$try
        dcp-export "$dir/c" "$said" --format $format >/dev/null 2>"$dir/err" & first=$!
        dcp-export "$dir/c" "$said" --format $format >/dev/null 2>>"$dir/err" || status[0]=$?
        wait $first || status[1]=$?
        [ $((status[0] + status[1])) = 2 ] || fail "$format: statuses ${status[*]} of two exports"
    done
done
no_leftovers "$dir"

model=$dir/model
mkdir "$model"
cp "$DCP_SOURCE"/tests/data/golden/qwen3/{config.json,model.safetensors} "$model"
gives 0 dcp-import "$model" "$dir/i" --dry-run
gives 0 dcp-import "$model" "$dir/i"
gives 2 dcp-import "$model" "$dir/i"
gives 0 dcp-import "$model" "$dir/i" --force
gives 3 limited dcp-import "$model" "$dir/no-i"
cp -r "$model" "$dir/hf-cut"
truncate -s -1 "$dir/hf-cut/model.safetensors"
gives 1 dcp-import "$dir/hf-cut" "$dir/no-i"
gives 3 full dcp-import "$model" "$dir/i2" --dry-run
[ ! -e "$dir/no-i/step-00000000" ] || fail "a failed dcp-import left a step"
no_leftovers "$dir"

# stopped COMMAND...: SIGTERM arrives at COMMAND's change number $at below $dir/stop.
at=1
stopped() { (
    rm -rf "$dir/stop" "$dir/control"
    mkdir "$dir/stop" "$dir/control"
    export INJECT_BELOW="$dir/stop" INJECT_CONTROL="$dir/control" INJECT_FAULT=term
    export INJECT_RANK=0 INJECT_AT=$at INJECT_LOG=1 OMPI_COMM_WORLD_RANK=0
    LD_PRELOAD=$CRASH_INJECT "$@"
); }
nothing_left() { [ -z "$(find "$dir/stop" -name 'step-*' -o -name '*tmp*' -o -name hf)" ] || fail "left: $*"; }
gives 143 stopped dcp-export "$dir/c" "$dir/stop/hf"
nothing_left dcp-export
gives 143 stopped dcp-reshard "$dir/c" "$dir/stop/s" --layout sharded --world 2
nothing_left dcp-reshard
gives 143 stopped dcp-import "$model" "$dir/stop/i"
nothing_left dcp-import

# Before the rename a stopped export leaves nothing; after it, the complete folder.
for format in safetensors hdf5; do
    at=1000 # never
    gives 0 stopped dcp-export "$dir/c" "$dir/stop/hf" --format $format
    cp -r "$dir/stop/hf" "$dir/whole"
    at=$(($(grep -m 1 rename "$dir/control/calls.0" | cut -d ' ' -f 1) - 1))
    gives 143 stopped dcp-export "$dir/c" "$dir/stop/hf" --format $format
    nothing_left dcp-export
    at=$((at + 1))
    gives 0 stopped dcp-export "$dir/c" "$dir/stop/hf" --format $format
    [ -e "$dir/control/fired" ] || fail "no signal"
    diff -r "$dir/whole" "$dir/stop/hf" || fail "an export that was done is not whole"
    no_leftovers "$dir/stop"
    rm -r "$dir/whole"
done

# Files of a killed export are removed; those of a running export stay.
mkdir "$dir/new.tmp-left00" "$dir/new.tmp-alive0"
exec 9<"$dir/new.tmp-alive0"
flock 9
mkdir "$dir/new.tmp-alive0.old"
gives 0 dcp-export "$dir/c" "$dir/new"
[ -e "$dir/new.tmp-alive0.old" ] || fail "what a living export replaces was taken"
rmdir "$dir/new.tmp-alive0.old"
[ ! -e "$dir/new.tmp-left00" ] && [ -e "$dir/new.tmp-alive0" ] || fail "left-overs of exports"
exec 9<&-
rmdir "$dir/new.tmp-alive0"
# An export was killed between its two renames: the folder that it was to replace gets its name
# back, or is removed if another one has the name.
mv "$dir/new" "$dir/new.tmp-killed.old"
gives 2 dcp-export "$dir/c" "$dir/new"
says "new: put back what a killed export was about to replace"
mkdir "$dir/new.tmp-killed.old" "$dir/new.tmp-backup.old"
touch "$dir/new.tmp-backup.old/mine"
gives 0 dcp-export "$dir/c" "$dir/new" --force
[ -e "$dir/new.tmp-backup.old/mine" ] || fail "what is no export was taken for a left-over"
rm -r "$dir/new.tmp-backup.old"
[ "$(echo "$dir"/new*)" = "$dir/new" ] || fail "left: $(echo "$dir"/new*)"
ln -s "$dir/new" "$dir/link"
gives 2 dcp-export "$dir/c" "$dir/link" --force
says "is a symbolic link"

# If the newest step is damaged, the message names the step before it.
cp -r "$dir/c" "$dir/two"
"$MAKE_CHECKPOINT" "$dir/two" 4
printf x | dd of="$dir/two/step-00000004/state.h5" bs=1 seek=100000 conv=notrunc status=none
for command in "dcp-export $dir/two $dir/no-hf" "dcp-reshard $dir/two $dir/none --layout global" \
    "dcp-inspect show $dir/two big.weight" "dcp-inspect verify $dir/two"; do
    gives 1 $command
    says "to use that one, give $dir/two/$step"
done
printf x | dd of="$dir/two/step-00000004/state.h5" bs=1 seek=100 conv=notrunc status=none
gives 1 dcp-inspect diff "$dir/two" "$dir/c"
says "to use that one, give $dir/two/$step"

# JSON is UTF-8.
cp -r "$dir/c" "$dir/"$'\xff'
for command in ls show verify stat "layout --world 2" diff; do
    gives 2 dcp-inspect $command --json "$dir/"$'\xff' "$dir/c"
    says "is not UTF-8"
done
gives 2 dcp-reshard "$dir/"$'\xff' "$dir/none" --layout global --dry-run --json
says "is not UTF-8"
gives 0 env -C "$dir/"$'\xff' dcp-inspect ls --json .
gives 0 dcp-inspect ls "$dir/"$'\xff'

gives 0 dcp-inspect ls "$dir/c"
gives 2 dcp-inspect ls "$dir/nowhere"
gives 2 dcp-inspect ls "$dir/c/$step"
says "is a step's folder; give the directory"
gives 3 full dcp-inspect ls "$dir/c"
gives 0 dcp-inspect show "$dir/c"
gives 1 dcp-inspect show "$dir/damaged" big.weight
gives 2 dcp-inspect show "$dir/c" no.such.tensor
gives 2 dcp-inspect show "$dir/c" 'big.weight[0,-8000]'
says "index -8000 of dimension 1 is out of range: /model/big.weight has [0-9]* indices in this dimension (-"
gives 3 full dcp-inspect show "$dir/c"
gives 0 env -C "$dir" dcp-inspect verify ./c/
prints "^./c/$step: intact"
gives 2 dcp-inspect verify "$dir/nowhere"
gives 3 full dcp-inspect verify "$dir/c"
status=0
dcp-inspect verify "$dir/damaged" >"$dir/out" 2>"$dir/err" || status=$?
[ $status -eq 1 ] || fail "verify of a damaged step: exit $status"
gives 0 dcp-inspect diff "$dir/c" "$dir/c" --rtol 1e-5 --atol 0
gives 2 dcp-inspect diff "$dir/c" "$dir/nowhere"
gives 3 full dcp-inspect diff "$dir/c" "$dir/s" --all
gives 0 dcp-inspect stat "$dir/c"
gives 3 full dcp-inspect layout "$dir/c" --world 2

# Each program reports that a limit on file sizes is reached; no program is killed by SIGXFSZ.
for program in "$DCP_BIN"/dcp-*; do
    program=${program##*/dcp-}
    gives 3 beneath 0 dcp-$program --help
    says "cannot write to stdout: File too large"
done
for command in "ls $dir/c" "show $dir/c" "diff $dir/c $dir/s --all" "stat $dir/c" "prove $dir/c" \
    "layout $dir/c --world 2"; do
    gives 3 beneath 0 dcp-inspect $command
    says "cannot write to stdout: File too large"
done
for blocks in 0 1; do
    gives 3 beneath $blocks dcp-inspect layout "$dir/c" --world 2 --svg "$dir/drawing.svg"
    says "drawing.svg: File too large"
done

size=(--layers 1 --hidden 64 --vocab 100)
gives 0 dcp-bench save "$dir/b" "${size[@]}" --repeat 2
gives 0 dcp-bench save "$dir/b3" "${size[@]}" --copies 1 --trust
gives 2 dcp-bench load "$dir/nowhere" --dry-run
gives 0 dcp-bench load "$dir/b" "${size[@]}" --repeat 2
gives 2 dcp-bench load "$dir/b" --layers 2 --hidden 64 --vocab 100
gives 3 limited dcp-bench save "$dir/b2" "${size[@]}"
printf x | dd of="$(echo "$dir"/b/step-*/state.h5)" bs=1 seek=300000 conv=notrunc status=none
gives 1 dcp-bench load "$dir/b" "${size[@]}"

# Options of dcp-bench that are not tested above.
gives 0 dcp-bench --help
prints "^Usage: dcp-bench save|async|load DIR"
gives 0 dcp-bench --version
gives 0 dcp-bench async "$dir/b3" "${size[@]}" --engine direct
prints '"op":"async","engine":"direct","ranks":1'
gives 0 dcp-bench save "$dir/b4" "${size[@]}" --dry-run
prints "^write $dir/b4/step-"
[ ! -e "$dir/b4" ] || fail "--dry-run made a directory"
