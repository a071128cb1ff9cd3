#!/usr/bin/env bash
# global -> 4 -> 8 -> global gives the same bytes, on one rank and on several; nothing is
# overwritten without --force.
. "$(dirname "$0")/tools_lib.sh"
"$MAKE_CHECKPOINT" "$dir/g" 3
step=step-00000003

gives 0 dcp-reshard "$dir/g/$step" "$dir/s4" --layout sharded --world 4
gives 0 dcp-reshard "$dir/s4" "$dir/s8" --layout sharded --mesh fsdp=8
[ ! -e "$dir/s8/latest" ] || fail "latest appeared, though no run writes there"
[ "$(ls "$dir/s8/$step"/shard-*-of-00008.h5 | wc -l)" -eq 8 ] || fail "not 8 shards"
gives 0 dcp-inspect verify "$dir/s8"
gives 0 dcp-reshard "$dir/s8" "$dir/back" --layout global
same "$dir/g/$step/state.h5" "$dir/back/$step/state.h5"
gives 0 dcp-reshard "$dir/s4" "$dir/s1" --layout sharded --world 1
gives 0 dcp-reshard "$dir/s1" "$dir/s4b" --layout sharded --world 4
for i in 0 1 2 3; do
    same "$dir/s4/$step/shard-0000$i-of-00004.h5" "$dir/s4b/$step/shard-0000$i-of-00004.h5"
done

# A file of the other layout beside shards is damage; it is not another step.
cp -r "$dir/s4" "$dir/both"
cp "$dir/g/$step/state.h5" "$dir/both/$step/"
! dcp-inspect verify "$dir/both" >"$dir/out" || fail "a step with both layouts verifies"
prints "holds both state.h5 and shards of 4 ranks"

# Ranks share the work.
gives 0 $DCP_MPIRUN -n 3 dcp-reshard "$dir/s4" "$dir/m8" --layout sharded --world 8
for i in 0 1 2 3 4 5 6 7; do
    same "$dir/s8/$step/shard-0000$i-of-00008.h5" "$dir/m8/$step/shard-0000$i-of-00008.h5"
done
gives 0 $DCP_MPIRUN -n 2 dcp-reshard "$dir/m8" "$dir/mg" --layout global
same "$dir/g/$step/state.h5" "$dir/mg/$step/state.h5"
if [ -z "${DCP_ALONE-}" ]; then
    gives 0 $DCP_MPIRUN -n 2 dcp-reshard "$dir/g" "$dir/m2" --layout sharded
    [ -e "$dir/m2/$step/shard-00001-of-00002.h5" ] || fail "not one file per rank"
fi

# --dry-run writes nothing.
gives 0 dcp-reshard "$dir/g" "$dir/plan" --layout sharded --world 2 --dry-run
prints "shard-00001-of-00002.h5"
[ ! -e "$dir/plan" ] || fail "--dry-run made $dir/plan"

# An existing step stays unless --force is given.
gives 2 dcp-reshard "$dir/s4" "$dir/s8" --layout global
says "already exists"
gives 2 dcp-reshard "$dir/s4/$step" "$dir/s4" --layout global
says "same directory"
gives 2 dcp-reshard "$dir/s4" "$dir/./s4" --layout global
[ -e "$dir/s4/$step/shard-00000-of-00004.h5" ] || fail "the refused run changed the step"
ln -s step-00000009 "$dir/s4/latest"
gives 0 dcp-reshard "$dir/s4" "$dir/s4" --layout global --force
[ "$(readlink "$dir/s4/latest")" = step-00000009 ] || fail "latest was moved"
same "$dir/g/$step/state.h5" "$dir/s4/$step/state.h5"
no_leftovers "$dir/s4"

# Another writer holds the directory.
"$MAKE_CHECKPOINT" "$dir/g" 5
coproc holder {
    "$DCP_PYTHON" -c 'import fcntl, sys
lock = open(sys.argv[1], "r+")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()' "$dir/s8/.lock"
}
read -r _ <&"${holder[0]}"
gives 2 dcp-reshard "$dir/g" "$dir/s8" --layout global
says "in use by another writer, process [0-9]* on host"
kill "$holder_PID"
[ ! -e "$dir/s8/step-00000005" ] || fail "wrote past another writer"
