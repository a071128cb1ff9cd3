#!/usr/bin/env bash
# dcp-reshard uses no more memory than --memory, whatever the checkpoint: also for larger tensors,
# cut by rows or by columns. A --memory that does not suffice is refused before anything is written.
. "$(dirname "$0")/tools_lib.sh"
case $(nm -D "$DCP_BIN/dcp-reshard" 2>/dev/null) in *__asan*) echo "address sanitizer: memory says nothing" && exit 77 ;; esac
# 275 MB in three tensors of 90 MB and some small ones.
"$DCP_BIN/dcp-bench" save "$dir/g" --layers 1 --hidden 64 --vocab 350000 >"$dir/out"
peak() { # LIMIT_KIB COMMAND...: checks the largest resident size
    local limit=$1
    shift
    "$DCP_PYTHON" - "$limit" "$@" >"$dir/peak" 2>&1 <<'PY' || fail "$*: $(cat "$dir/peak")"
import resource, subprocess, sys
status = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL).returncode
kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print("exit", status, "peak", kib, "KiB, limit", sys.argv[1])
sys.exit(status != 0 or kib > int(sys.argv[1]))
PY
}
peak $((128 << 10)) dcp-reshard "$dir/g" "$dir/w4" --layout sharded --world 4 --memory 128MiB
peak $((128 << 10)) dcp-reshard "$dir/w4" "$dir/t4" --layout sharded --mesh tp=4 \
    --tp-rule '*embed_tokens*=1' --memory 128MiB
peak $((256 << 10)) dcp-reshard "$dir/t4" "$dir/back" --layout global
step=$(cd "$dir/g" && echo step-*)
same "$dir/g/$step/state.h5" "$dir/back/$step/state.h5"

gives 2 dcp-reshard "$dir/g" "$dir/dst" --layout global --memory 20MiB
says "20 MiB are not enough"
for size in 0 x 5XB -1; do
    gives 2 dcp-reshard "$dir/g" "$dir/dst" --layout global --memory $size
    says "must be a size of at least 1 byte"
done
[ ! -e "$dir/dst" ] || fail "a refused run made $dir/dst"
