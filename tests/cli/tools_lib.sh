# To be sourced by the tests of the tools: a scratch folder $dir that goes at the end, and what a
# program's run must give. $MAKE_CHECKPOINT is the program of tests/corrupt/make_checkpoint.c.
set -euo pipefail
dir=$(mktemp -d "${TMPDIR:-/tmp}/dcp_tools.XXXXXX")
trap 'rm -rf "$dir"' EXIT
export PATH=$DCP_BIN:$PATH

fail() {
    echo "FAILED: $*"
    cat "$dir/out" "$dir/err" 2>/dev/null || true
    exit 1
}

# gives STATUS COMMAND...: it ends with STATUS; its output is in $dir/out and $dir/err. On stderr is
# nothing where it is 0 (launchers may have their say), else something.
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

# notes COMMAND...: it ends with 0, and has something to tell on stderr.
notes() {
    "$@" >"$dir/out" 2>"$dir/err" || fail "$*: exit $?"
    [ -s "$dir/err" ] || fail "$*: says nothing on stderr"
}

prints() { grep -q -- "$1" "$dir/out" || fail "not on stdout: $1"; }
says() { grep -q -- "$1" "$dir/err" || fail "not on stderr: $1"; }
same() { cmp "$1" "$2" || fail "$1 and $2 differ"; }
no_leftovers() { # FOLDER: no temporary file in it
    [ -z "$(find "$1" -name '*tmp*' -print -quit)" ] || fail "left over: $(find "$1" -name '*tmp*')"
}
