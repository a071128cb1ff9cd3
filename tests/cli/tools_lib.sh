# Sourced by the tests of the tools: makes a scratch folder $dir, which is removed at the end, and
# defines functions that check a program's result. $MAKE_CHECKPOINT is the program of
# tests/corrupt/make_checkpoint.c. If $DCP_ALONE is not empty, the programs are built without MPI, and
# $DCP_MPIRUN starts one process whatever its -n is.
set -euo pipefail
dir=$(mktemp -d "${TMPDIR:-/tmp}/dcp_tools.XXXXXX")
trap 'rm -rf "$dir"' EXIT
export PATH=$DCP_BIN:$PATH

fail() {
    echo "FAILED: $*"
    cat "$dir/out" "$dir/err" 2>/dev/null || true
    exit 1
}

# gives STATUS COMMAND...: COMMAND ends with STATUS; its output is in $dir/out and $dir/err. stderr
# is empty if STATUS is 0 (except for messages of launchers), otherwise not.
gives() {
    local expected=$1 status=0
    shift
    "$@" >"$dir/out" 2>"$dir/err" || status=$?
    [ $status -eq "$expected" ] || fail "$*: exit $status, expected $expected"
    if [ "$expected" -eq 0 ]; then
        [[ $1 != dcp-* || ! -s $dir/err ]] || fail "$*: talks on stderr"
    else
        [ -s "$dir/err" ] || fail "$*: says nothing on stderr"
    fi
}

# notes COMMAND...: COMMAND ends with 0 and writes to stderr.
notes() {
    "$@" >"$dir/out" 2>"$dir/err" || fail "$*: exit $?"
    [ -s "$dir/err" ] || fail "$*: says nothing on stderr"
}

prints() { grep -q -- "$1" "$dir/out" || fail "not on stdout: $1"; }
says() { grep -q -- "$1" "$dir/err" || fail "not on stderr: $1"; }
same() { cmp "$1" "$2" || fail "$1 and $2 differ"; }
no_leftovers() { # FOLDER: it contains no temporary files
    [ -z "$(find "$1" -name '*tmp*' -print -quit)" ] || fail "left over: $(find "$1" -name '*tmp*')"
}
