#!/usr/bin/env bash
# A sharded step without one of its shards, or with a shard of another step, is damaged; loads
# refuse it.
set -euo pipefail
dir=$(mktemp -d "${TMPDIR:-/tmp}/dcp_shards.XXXXXX")
trap 'rm -rf "$dir"' EXIT
for step in 3 4; do
    "$MAKE_CHECKPOINT" "$dir/g" $step
    "$DCP_BIN/dcp-reshard" "$dir/g/step-0000000$step" "$dir/s" --layout sharded --world 3 >"$dir/out"
done
a=$dir/s/step-00000003 b=$dir/s/step-00000004

fail() {
    echo "FAILED: $*"
    cat "$dir/out" "$dir/err" 2>/dev/null || true
    exit 1
}

# refused NAME: both verify and a program that reads find step 3 damaged.
refused() {
    local status=0
    "$DCP_BIN/dcp-inspect" verify "$a" >"$dir/out" 2>"$dir/err" || status=$?
    [ $status -eq 1 ] || fail "verify: exit $status"
    grep -q "$1" "$dir/out" || fail "not named: $1"
    status=0
    "$DCP_BIN/dcp-export" "$a" "$dir/hf" >"$dir/out" 2>"$dir/err" || status=$?
    [ $status -eq 1 ] || fail "export: exit $status"
    [ ! -e "$dir/hf" ] || fail "an export appeared"
}

"$DCP_BIN/dcp-inspect" verify "$a" >"$dir/out"
mv "$a/shard-00001-of-00003.h5" "$dir/kept"
refused shard-00001-of-00003.h5
cp "$b/shard-00001-of-00003.h5" "$a"
refused shard-00001-of-00003.h5
cp "$a/shard-00000-of-00003.h5" "$a/shard-00001-of-00003.h5"
refused shard-00001-of-00003.h5
mv "$dir/kept" "$a/shard-00001-of-00003.h5"
cp "$a/shard-00001-of-00003.h5" "$a/shard-00003-of-00004.h5"
refused shard
rm "$a/shard-00003-of-00004.h5"
"$DCP_BIN/dcp-inspect" verify "$a" >"$dir/out" || fail "mended, yet not intact"
