#!/usr/bin/env bash
# HDF5 metadata that is hostile although every checksum is right: circular links, links to other
# files, external, virtual, chunked or filtered datasets, or no HDF5 at all. The tools read
# according to the index: they return what was saved and open no other file, and verify reports what
# differs from a file that libdcp writes.
set -euo pipefail
command -v strace >/dev/null || { echo "no strace"; exit 77; }
strace -o /dev/null true 2>/dev/null || { echo "strace may not trace here"; exit 77; }
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 # LeakSanitizer cannot run under strace
dir=$(mktemp -d "${TMPDIR:-/tmp}/dcp_hdf5.XXXXXX")
trap 'rm -rf "$dir"' EXIT
export PATH=$DCP_BIN:$PATH

fail() {
    echo "FAILED: $kind: $*"
    cat "$dir/out" "$dir/err" 2>/dev/null || true
    exit 1
}

# traced PROGRAM ARGS: PROGRAM exits with 0 within a minute, and opens no file of $dir/outside.
traced() {
    rm -f "$dir/trace"
    timeout 60 strace -f -qq -o "$dir/trace" -e trace=openat,open,openat2 "$@" >"$dir/out" 2>"$dir/err" ||
        fail "$*: exit $?"
    [ -s "$dir/trace" ] || fail "$*: no trace"
    if grep -q "$dir/outside" "$dir/trace"; then fail "$*: opened $(grep "$dir/outside" "$dir/trace")"; fi
}

mkdir "$dir/outside"
"$DCP_PYTHON" - "$dir/outside" <<'PY'
import h5py, numpy, sys
with h5py.File(sys.argv[1] + "/canary.h5", "w") as f:
    f["secret"] = numpy.array([666, 666, 666], "<f4")
open(sys.argv[1] + "/canary.bin", "wb").write(b"secret secret")
PY
kind=honest
"$MAKE_CHECKPOINT" "$dir/real" 7
real=$dir/real/step-00000007
dcp-inspect show "$real" /model/norm >"$dir/shown" || fail show
dcp-export "$real" "$dir/export-real" >"$dir/out" 2>"$dir/err" || fail export
dcp-reshard "$real" "$dir/sharded-real" --layout sharded --world 2 >"$dir/out" 2>"$dir/err" || fail reshard
for honest in "$real" "$dir/sharded-real"; do
    dcp-inspect verify "$honest" >"$dir/out" 2>"$dir/err" || fail "verify $honest"
    [ ! -s "$dir/err" ] || fail "verify $honest: notes on what is as written"
done

for kind in soft_cycle hard_cycle external_link external_storage virtual chunked unknown_filter no_hdf5; do
    step=$dir/$kind/step-00000007
    mkdir "$dir/$kind"
    cp -r "$real" "$step"
    "$DCP_PYTHON" "$DCP_SOURCE/tests/corrupt/forge_hdf5.py" $kind "$step/state.h5" "$dir/outside"
    cmp -s "$real/state.h5" "$step/state.h5" && fail "nothing forged"
    traced dcp-inspect ls "$dir/$kind"
    traced dcp-inspect show "$step" /model/norm
    cmp "$dir/out" "$dir/shown" || fail "show: other values"
    traced dcp-inspect verify "$step"
    grep -q "state.h5: HDF5 metadata: not what this library writes" "$dir/err" || fail "verify: no note"
    traced dcp-export "$step" "$dir/export-$kind"
    cmp "$dir/export-real/model.safetensors" "$dir/export-$kind/model.safetensors" || fail "export: other values"
    traced dcp-reshard "$step" "$dir/sharded-$kind" --layout sharded --world 2
    cmp "$dir"/sharded-{real,$kind}/step-00000007/shard-00000-of-00002.h5 || fail "reshard: other values"
    rm -rf "$dir/$kind" "$dir"/{export,sharded}-$kind
done
