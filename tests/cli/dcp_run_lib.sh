# Sourced by the tests of dcp-run: makes a scratch folder $dir, which is removed at the end, and
# defines functions that wait for conditions. $DCP_RUN_RANK is the program of dcp_run_rank.c.
set -euo pipefail
dir=$(mktemp -d "${TMPDIR:-/tmp}/dcp_run.XXXXXX")
trap 'kill -KILL $(jobs -pr) 2>/dev/null || true; rm -rf "$dir"' EXIT
# Where a killed mpirun leaves its files.
export OMPI_MCA_orte_tmpdir_base="$dir" OMPI_MCA_btl_vader_backing_directory="$dir"

fail() {
    echo "FAILED: $*"
    cat "$dir"/err* 2>/dev/null || true
    exit 1
}

# until_true COMMAND...: waits until COMMAND succeeds, at most 60 s.
until_true() {
    local deadline=$((SECONDS + 60))
    until "$@" 2>/dev/null; do
        [ $SECONDS -lt $deadline ] || fail "waited in vain for: $*"
        sleep 0.01
    done
}

# run ARGS...: starts dcp-run in the background, with its pid in $run and its stderr in $dir/err.
run() {
    : >"$dir/err"
    "$DCP_BIN/dcp-run" "$@" 2>"$dir/err" >"$dir/out" &
    run=$!
}

# pids K: prints the pids of the ranks of start K; fails if that start does not exist.
pids() { sed -n "s/^dcp-run: start $1, [0-9]* ranks\{0,1\}, pids //p" "$dir/err" | grep .; }

started() { pids "$1" >/dev/null; }

# up K: all ranks of start K are ready.
up() {
    local pid
    started "$1" || return 1
    for pid in $(pids "$1"); do [ -e "$dir/up.$pid" ] || return 1; done
}

gone() { # PIDS...: none of these processes is alive; a zombie is not alive
    local pid
    for pid; do ! grep -q '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$pid/status" 2>/dev/null || return 1; done
}

# ends STATUS: dcp-run ends with STATUS.
ends() {
    local status=0
    wait "$run" || status=$?
    [ $status -eq "$1" ] || fail "exit $status, expected $1"
}

says() { grep -q -- "$1" "$dir/err" || fail "not said: $1"; }
says_not() { ! grep -q -- "$1" "$dir/err" || fail "wrongly said: $1"; }
