#!/usr/bin/env bash
# dcp-inspect verify on damaged steps: exit status 1, and the place of the damage on stdout. A path
# that does not exist is wrong usage.
set -euo pipefail
dir=$(mktemp -d "${TMPDIR:-/tmp}/dcp_verify.XXXXXX")
trap 'rm -rf "$dir"' EXIT
"$MAKE_CHECKPOINT" "$dir/c" 7
step=$dir/c/step-00000007
cp -r "$step" "$dir/whole"

fail() {
    echo "FAILED: $*"
    cat "$dir/out" "$dir/err" 2>/dev/null || true
    exit 1
}

# expect STATUS PATTERN PATH: verify PATH exits with STATUS, and PATTERN is on stdout, or on stderr
# if STATUS is 2.
expect() {
    local status=0
    "$DCP_BIN/dcp-inspect" verify "$3" >"$dir/out" 2>"$dir/err" || status=$?
    [ $status -eq "$1" ] || fail "$3: exit $status, expected $1"
    if [ "$1" -eq 2 ]; then grep -q -- "$2" "$dir/err"; else grep -q -- "$2" "$dir/out"; fi ||
        fail "$3: not said: $2"
}

restore() { rm -rf "$step" && cp -r "$dir/whole" "$step"; }

expect 0 intact "$step"
expect 0 intact "$dir/c"
expect 2 "no such file or folder" "$dir/nowhere"
mkdir "$dir/empty"
expect 2 "no complete step" "$dir/empty"
expect 2 "not a folder" "$step/state.h5"

# Some dozens of flipped bytes.
size=$(stat -c %s "$step/state.h5")
RANDOM=5
for i in $(seq 30); do
    at=$(((RANDOM * 32768 + RANDOM) % size))
    [ "$i" -le 10 ] && at=$((at % 4096))
    byte=$(od -An -tu1 -j "$at" -N 1 "$step/state.h5")
    printf "\\x$(printf %02x $((byte ^ 1 << i % 8)))" |
        dd of="$step/state.h5" bs=1 seek="$at" conv=notrunc status=none
    if [ "$i" -le 10 ]; then expect 1 "user block" "$dir/c"; else expect 1 "state.h5" "$dir/c"; fi
    printf "\\x$(printf %02x "$byte")" |
        dd of="$step/state.h5" bs=1 seek="$at" conv=notrunc status=none
done
expect 0 intact "$step"

# Whole files are missing or damaged.
truncate -s 0 "$step/state.h5"; expect 1 "state.h5" "$step"; restore
truncate -s 5000 "$step/state.h5"; expect 1 "state.h5" "$step"; restore
echo >>"$step/state.h5"; expect 1 "state.h5" "$step"; restore
rm "$step/state.h5"; expect 1 "state.h5" "$step"; restore
head -c 100000 /dev/urandom >"$step/state.h5"; expect 1 "state.h5" "$step"; restore
rm "$step/about.json"; expect 1 "about.json" "$step"; restore
echo >>"$step/about.json"; expect 1 "about.json" "$step"; restore
rm "$step"/*; expect 1 "" "$step"; restore

# Another step's folder.
for name in step-00000099 .abandoned-step-00000099 .tmp-step-00000099; do
    mv "$step" "$dir/c/$name"
    expect 1 "the folder's name has step 99, but meta has 7" "$dir/c/$name/"
    mv "$dir/c/$name" "$step"
done
cp -r "$step" "$dir/step"; expect 0 intact "$dir/step"

# Another step's files.
"$MAKE_CHECKPOINT" "$dir/other" 8
cp "$dir/other/step-00000008/about.json" "$step"; expect 1 "about.json: it belongs to step 8, not 7" "$step"; restore
cp "$dir/other/step-00000008/state.h5" "$step"; expect 1 "the folder's name has step 7, but meta has 8" "$step"; restore
expect 0 intact "$step"

# The report as JSON.
truncate -s -1 "$step/state.h5"
"$DCP_BIN/dcp-inspect" verify --json "$step" >"$dir/out" 2>"$dir/err" && fail "exit 0"
"$DCP_PYTHON" - "$dir/out" <<'PY'
import json, sys
found = json.load(open(sys.argv[1]))
assert found["intact"] is False and "state.h5" in found["damage"][0], found
PY
restore

# All steps: the damaged step is not the newest one. A file that belongs to no step is damage.
"$MAKE_CHECKPOINT" "$dir/c" 8
truncate -s -1 "$step/state.h5"
expect 0 "step-00000008: intact" "$dir/c"
status=0
"$DCP_BIN/dcp-inspect" verify --all "$dir/c" >"$dir/out" 2>"$dir/err" || status=$?
[ $status -eq 1 ] && grep -q "step-00000007: DAMAGED" "$dir/out" &&
    grep -q "step-00000008: intact" "$dir/out" || fail "--all: exit $status"
"$DCP_BIN/dcp-inspect" verify --all --json "$dir/c" >"$dir/out" && fail "exit 0"
"$DCP_PYTHON" - "$dir/out" <<'PY'
import json, sys
found = json.load(open(sys.argv[1]))
assert [s["intact"] for s in found["steps"]] == [False, True] and found["intact"] is False, found
PY
restore
touch "$step/shard-00000-of-00002.h5" "$step/notes"
expect 1 "DAMAGED, 2 places" "$step"
for name in notes shard-00000-of-00002.h5; do
    grep -q "$name: surplus" "$dir/out" || fail "not told: $name"
done
restore
"$DCP_BIN/dcp-inspect" verify --all "$dir/c" >"$dir/out" || fail "--all: not intact"
status=0
"$DCP_BIN/dcp-inspect" verify --all "$dir/empty" >"$dir/out" 2>"$dir/err" || status=$?
[ $status -eq 2 ] || fail "--all of nothing: exit $status"
"$DCP_BIN/dcp-inspect" verify --json "$step" | grep -q '"intact": true' || fail "not intact"
