#!/usr/bin/env bash
# dcp-bench prints one JSON object per repeat. A step that 2 ranks saved can be loaded by 3 ranks
# and by one without mpirun. dcp-bench removes only its own earlier steps. Wrong usage ends with
# status 2.
set -euo pipefail

bench=$DCP_BIN/dcp-bench
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
small=(--layers 2 --hidden 24 --vocab 50)
mpirun=(mpirun --oversubscribe -n)

fail() { echo "dcp_bench.sh: $*" >&2; exit 1; }
expect_status() { # STATUS COMMAND...
    local want=$1 got=0
    shift
    "$@" >out 2>err || got=$?
    [ "$got" = "$want" ] || fail "exit $got, expected $want: $* ($(cat err))"
}
expect_objects() { # COUNT OP RANKS [ENGINE]: checks the objects in the file out
    local n
    n=$(grep -c "^{\"op\":\"$2\",\"engine\":\"${4:-direct}\",\"ranks\":$3,\"bytes\":223200,\"s\":" out || true)
    [ "$n $(wc -l <out)" = "$1 $1" ] || fail "not $1 objects: $(cat out)"
}

mkdir -p dir/step-00000007
touch dir/step-00000007/state.h5
expect_status 0 "${mpirun[@]}" 2 "$bench" save dir "${small[@]}" --repeat 3
expect_objects 3 save 2
[ "$(cd dir && echo step-*)" = "step-00000007 step-00000010" ] || fail "steps: $(ls dir)"
expect_status 0 "${mpirun[@]}" 3 "$bench" load dir "${small[@]}" --repeat 2
expect_objects 2 load 3
expect_status 0 "$bench" load dir "${small[@]}"
expect_objects 1 load 1

for other in "--layers 2 --vocab 51" "--layers 3 --vocab 50" "--layers 1 --vocab 50"; do
    expect_status 2 "${mpirun[@]}" 2 "$bench" load dir --hidden 24 $other
    [ "$(grep -c 'other sizes: pass the' err)" = 1 ] || fail "no hint: $(cat err)"
done
for op in save async load; do
    expect_status 0 "${mpirun[@]}" 2 "$bench" $op dir "${small[@]}" --dry-run
    grep -q 'dir/step-000000.*: 60 tensors, 223 kB, by 2 ranks, repeat 1' out || fail "plan: $(cat out)"
done
expect_status 0 "$bench" save new "${small[@]}" --dry-run
[ ! -e new ] || fail "a dry run made a folder"
expect_status 2 "$bench" load nowhere "${small[@]}"
expect_status 0 "${mpirun[@]}" 2 "$bench" async dir "${small[@]}" --repeat 2
expect_objects 2 async 2
expect_status 0 "${mpirun[@]}" 2 "$bench" save dir "${small[@]}" --engine mpio
expect_objects 1 save 2 mpio
expect_status 0 "${mpirun[@]}" 3 "$bench" load dir "${small[@]}" --engine mpio
expect_objects 1 load 3 mpio
expect_status 0 "$bench" load dir "${small[@]}" --engine direct
expect_objects 1 load 1
for trust in "" --trust; do
    expect_status 0 "${mpirun[@]}" 4 "$bench" save dir "${small[@]}" --copies 2 $trust
    expect_objects 1 save 4
done
expect_status 0 "${mpirun[@]}" 2 "$bench" load dir "${small[@]}" --copies 2
expect_objects 1 load 2
expect_status 2 "${mpirun[@]}" 3 "$bench" save dir "${small[@]}" --copies 2
grep -q -e "--copies 2: must divide the number of ranks, which is 3" err || fail "no reason for --copies: $(cat err)"
expect_status 2 "$bench" save dir --engine fast
expect_status 2 "$bench" save dir --engine cufile
grep -q "cufile was removed" err || fail "no reason for --engine cufile"
expect_status 2 "$bench" erase dir
expect_status 2 "$bench" save
expect_status 2 "$bench" save dir --layers 0
expect_status 2 "$bench" save dir --frobnicate
expect_status 0 "$bench" --help
expect_status 0 "$bench" --version
