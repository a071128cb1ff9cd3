#!/usr/bin/env bash
# A damaged source is refused with status 1 and a message that names tensor and block, on any number
# of ranks; the destination gets no step.
. "$(dirname "$0")/tools_lib.sh"
"$DCP_BIN/dcp-bench" save "$dir/g" --layers 1 --hidden 256 --vocab 6000 >"$dir/out"
step=$(cd "$dir/g" && echo step-*)
gives 0 dcp-reshard "$dir/g" "$dir/s3" --layout sharded --world 3

flip() { # FILE OFFSET
    "$DCP_PYTHON" -c 'import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
at = int(sys.argv[2])
byte = os.pread(fd, 1, at)
os.pwrite(fd, bytes([byte[0] ^ 32]), at)' "$1" "$2"
}
run=
refused() { # SRC TEXT OPTIONS...: without mpirun, or under $run
    local src=$1 text=$2
    shift 2
    gives 1 $run dcp-reshard "$src" "$dir/dst" "$@"
    says "$text"
    [ -z "$(find "$dir/dst" -name '*step*')" ] || fail "a step in $dir/dst"
}
each_place() { # DIR FILE: flips bytes of tensors all over the file
    local size offset name
    size=$(stat -c %s "$dir/$1/$2")
    for offset in $((size / 9)) $((size / 2)) $((size * 4 / 5)); do
        flip "$dir/$1/$2" "$offset"
        dcp-inspect verify "$dir/$1" >"$dir/verified" || true
        name=$(sed -nE 's/.*tensor ([^,]*), block ([0-9]+).*/tensor \1, block \2/p' "$dir/verified")
        [ -n "$name" ] || fail "no tensor is damaged: $(cat "$dir/verified")"
        refused "$dir/$1" "${2##*/}: $name: " --layout sharded --mesh fsdp=2,tp=2
        run="$DCP_MPIRUN -n 2" refused "$dir/$1" "${2##*/}: $name: " --layout global
        flip "$dir/$1/$2" "$offset"
    done
}
each_place g "$step/state.h5"
each_place s3 "$step/shard-00001-of-00003.h5"

# Damage of the file's structures.
flip "$dir/s3/$step/shard-00002-of-00003.h5" 20
refused "$dir/s3" "user block" --layout global
flip "$dir/s3/$step/shard-00002-of-00003.h5" 20
mv "$dir/s3/$step/shard-00000-of-00003.h5" "$dir/kept"
refused "$dir/s3/$step" "shard-00000-of-00003.h5 is missing" --layout global
: >"$dir/s3/$step/shard-00000-of-00003.h5"
refused "$dir/s3" "shard-00000-of-00003.h5" --layout global
rm "$dir/s3/$step/shard-00000-of-00003.h5"
ln -s "$dir/kept" "$dir/s3/$step/shard-00000-of-00003.h5"
refused "$dir/s3" "symbolic link" --layout global
