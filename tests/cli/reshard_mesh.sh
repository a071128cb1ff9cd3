#!/usr/bin/env bash
# From any mesh to any other, and back to the same bytes: 4 to 8, 8 to 4, 1 to 7, 2x2 (fsdp x tp) to
# 8 and back, replicas, other rules; by one process and by several ranks.
. "$(dirname "$0")/tools_lib.sh"
"$DCP_BIN/dcp-bench" save "$dir/g" --layers 1 --hidden 384 --vocab 3001 >"$dir/out"
step=$(cd "$dir/g" && echo step-*)
to() { # DIR SRC OPTIONS...: a reshard to shards succeeds
    local dst=$1 src=$2
    shift 2
    gives 0 dcp-reshard "$dir/$src" "$dir/$dst" --layout sharded "$@"
    gives 0 dcp-inspect verify "$dir/$dst"
}
same_step() { # A B: all files of the step are equal, except about.json
    local file
    for file in "$dir/$1/$step"/*.h5; do same "$file" "$dir/$2/$step/${file##*/}"; done
}

to w4 g --world 4
to w8 w4 --world 8
to w4b w8 --world 4
same_step w4 w4b
to w1 w8 --world 1
to w7 w1 --world 7
to m22 w4 --mesh fsdp=2,tp=2
to w8b m22 --mesh fsdp=8
same_step w8 w8b
to m22b w7 --mesh fsdp=2,tp=2
same_step m22 m22b
to t3 m22 --mesh tp=3
to r t3 --mesh tp=2,replicate=2,fsdp=2
to w4c r --world 4
same_step w4 w4c

# The built-in rule cuts o_proj's columns; the given one cuts its rows, as fsdp does.
to rule g --mesh tp=4 --tp-rule '*=0'
to rule8 rule --world 8
same_step w8 rule8
cmp -s "$dir/rule/$step/shard-00001-of-00004.h5" "$dir/w4/$step/shard-00001-of-00004.h5" ||
    fail "cut on dimension 0 by tp is not what fsdp cuts"
grep -q '"mesh": *"tp=2,fsdp=2,replicate=2"' "$dir/r/$step/about.json" ||
    grep -q '"mesh": *"tp=2,replicate=2,fsdp=2"' "$dir/r/$step/about.json" ||
    fail "about.json does not name the mesh"

# Rules that are not valid, or that match no tensor.
gives 2 dcp-reshard "$dir/g" "$dir/no" --layout sharded --mesh tp=2 --tp-rule '*o_proj*=0,*attn[*=0'
says "no tensor's name matches '\*attn\[\*'"
gives 2 dcp-reshard "$dir/g" "$dir/no" --layout sharded --mesh tp=2 --tp-rule '*=2'
says "have no dimension 2"
notes dcp-reshard "$dir/g" "$dir/no" --layout global --mesh fsdp=2 --dry-run
says "a global file serves any mesh"
[ ! -e "$dir/no" ] || fail "a refused run made a directory"
gives 0 dcp-inspect ls "$dir/w4" --json
prints '"ranks": 4'

# Ranks share the work, a few and many of them.
for n in 2 5; do
    rm -rf "$dir/p" "$dir/pg"
    gives 0 $DCP_MPIRUN -n $n dcp-reshard "$dir/w7" "$dir/p" --layout sharded --mesh fsdp=2,tp=2
    same_step m22 p
    gives 0 $DCP_MPIRUN -n $n dcp-reshard "$dir/p" "$dir/pg" --layout global
    same "$dir/g/$step/state.h5" "$dir/pg/$step/state.h5"
done
gives 0 dcp-reshard "$dir/t3" "$dir/tg" --layout global
same "$dir/g/$step/state.h5" "$dir/tg/$step/state.h5"
