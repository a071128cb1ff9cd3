#!/usr/bin/env bash
# Each benchmark that is a shell script has --help, requires a folder, and makes no other folder.
set -euo pipefail
bench=$DCP_SOURCE/tests/bench
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

fail() { echo "FAILED: $1" && exit 1; }
for script in $(grep -l '^\. .*common.sh"' "$bench"/*.sh); do
    name=${script##*/}
    said=$("$script" --help 2>&1) || fail "$name --help: $? $said"
    grep -q "tests/bench/$name .*DIR" <<<"$said" || fail "$name --help shows no usage: $said"
    status=0
    said=$("$script" 2>&1) || status=$?
    [ $status -eq 2 ] && grep -q "^$name: names no DIR" <<<"$said" || fail "$name: exit $status: $said"
done
[ -z "$(ls -A)" ] || fail "they have made $(ls -A)"
