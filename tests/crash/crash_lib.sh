# Sourced by the tests of this folder: makes a scratch folder $dir whose store $store holds step 1,
# and defines saves of step 2 by two ranks in which the kernel (through strace) fails one rank's
# system call or kills the rank there. $CRASH_STATE is the program of crash_state.c.
set -euo pipefail
command -v strace >/dev/null || { echo "no strace"; exit 77; }
strace -o /dev/null true 2>/dev/null || { echo "strace may not trace here"; exit 77; }
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 # LeakSanitizer cannot run under strace
export OMPI_MCA_odls_base_sigkill_timeout=0 # mpirun ends the other ranks at once
dir=$(mktemp -d "${TMPDIR:-/tmp}/dcp_crash.XXXXXX")
trap 'rm -rf "$dir"' EXIT
store=$dir/store
tmp=$store/.tmp-step-00000002

fail() {
    echo "FAILED: $*"
    grep -v '^-*$' "$dir/out" "$dir/err" 2>/dev/null || true
    ls -AR "$store" || true
    exit 1
}

ranks() { # N ARGS...: runs crash_state on N ranks, for 60 s at most
    local n=$1
    shift
    timeout 60 $DCP_MPIRUN -n "$n" "$CRASH_STATE" "$@" >"$dir/out" 2>"$dir/err"
}

alone() { # ARGS...: runs crash_state without a launcher
    timeout 60 "$CRASH_STATE" "$@" >"$dir/out" 2>"$dir/err"
}

# fresh [LAYOUT]: restores the store to step 1 alone.
fresh() {
    if [ ! -d "$dir/first" ]; then
        ranks 2 save "$dir/first" 1 || fail "the first save"
    fi
    rm -rf "$store"
    cp -a "$dir/first" "$store"
}

# injected RANK OPTIONS... -- ARGS...: runs crash_state ARGS on two ranks; rank RANK runs under
# strace with OPTIONS. The exit status is in $status. With --seccomp-bpf strace cannot inject
# signals.
injected() {
    local rank=$1 options=() traced plain
    shift
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    [[ ${options[*]} == *signal=* ]] || options+=(--seccomp-bpf)
    traced=(-n 1 strace -f -o "$dir/trace" "${options[@]}" "$CRASH_STATE" "$@")
    plain=(-n 1 "$CRASH_STATE" "$@")
    status=0
    if [ "$rank" -eq 0 ]; then
        timeout 60 $DCP_MPIRUN "${traced[@]}" : "${plain[@]}" >"$dir/out" 2>"$dir/err" || status=$?
    else
        timeout 60 $DCP_MPIRUN "${plain[@]}" : "${traced[@]}" >"$dir/out" 2>"$dir/err" || status=$?
    fi
    [ $status -ne 124 ] || fail "$*: hangs"
}

was_injected() { grep -q 'INJECTED\|killed by' "$dir/trace" || fail "$1: nothing was injected"; }
says() { grep -q -- "$1" "$dir/err" || fail "not on stderr: $1"; }

# loads STEPS: on one rank, the newest step is one of STEPS and has exactly its content; leftovers
# are removed, and the next save works.
loads() {
    alone next "$store" || fail "no good step afterwards"
    [[ " $1 " == *" $(head -1 "$dir/out") "* ]] || fail "step $(head -1 "$dir/out") loads, not $1"
    [ -z "$(ls -A "$store" | grep -v '^step-[0-9]*$\|^latest$\|^\.lock$')" ] || fail "left-overs"
}

# cleaned: the failed save left nothing behind, even before the store is opened again.
cleaned() {
    [ -z "$(ls -A "$store" | grep -v '^step-00000001$\|^latest$\|^\.lock$')" ] || fail "left-overs: $*"
}
