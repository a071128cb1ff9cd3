#!/usr/bin/env bash
# cmake/setup.sh where packages are there, missing, and not to be had; dpkg-query, apt-get and id are
# stand-ins that know a list of what is installed.
set -euo pipefail
setup=$DCP_SOURCE/cmake/setup.sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export DCP_SETUP_TRIED=$dir/tried STATE=$dir PATH=$dir/bin:$PATH
mkdir "$dir/bin"
cat >"$dir/bin/dpkg-query" <<'END'
#!/bin/sh
grep -qx "$4" "$STATE/installed" && echo installed
END
cat >"$dir/bin/apt-get" <<'END'
#!/bin/bash
echo "$1" >>"$STATE/calls"
[ -e "$STATE/offline" ] && exit 100
[ "$1" = update ] && exit
for word in "${@:2}"; do
    [[ $word == -* ]] && continue
    grep -qsx "$word" "$STATE/refused" && exit 100
    echo "$word" >>"$STATE/installed"
done
END
printf '#!/bin/sh\ncat "$STATE/uid"\n' >"$dir/bin/id"
chmod +x "$dir"/bin/*

fail() {
    echo "FAILED: $1"
    cat "$dir/out"
    exit 1
}
run() { # EXPECTED-STATUS
    local status=0
    : >"$dir/calls"
    "$setup" >"$dir/out" 2>&1 || status=$?
    [ $status -eq "$1" ] || fail "exit $status, not $1"
}
calls() { [ "$(sort -u "$dir/calls" | tr '\n' ' ')" = "$1" ] || fail "calls: $(cat "$dir/calls")"; }
says() { grep -q -- "$1" "$dir/out" || fail "not said: $1"; }
has() { grep -qx "$1" "$dir/installed" || fail "$1 is not installed"; }

echo 0 >"$dir/uid"
touch "$dir/installed"
run 0 # a bare machine
has gcc && has libfuse3-dev
run 0 # all is there
calls ""
[ ! -s "$dir/out" ] || fail "it says something"

without() { # NAME
    grep -vx "$1" "$dir/installed" >"$dir/rest" && mv "$dir/rest" "$dir/installed"
}
without libfuse3-dev # an optional one is missing, and can be had
run 0
calls "install update "
has libfuse3-dev

without libfuse3-dev # and can't: said once, not tried again
echo libfuse3-dev >"$dir/refused"
run 0
says "there is no libfuse3-dev"
run 0
calls ""

rm "$DCP_SETUP_TRIED" "$dir/refused" # nor without a network
touch "$dir/offline"
echo libfuse3-dev >"$dir/refused"
run 0
without gcc # what is needed is needed
run 100
rm "$dir/offline"
run 0
has gcc

echo 1000 >"$dir/uid" # not root: asked for what is needed alone
rm "$DCP_SETUP_TRIED"
run 0
calls ""
without gcc
run 2
says "sudo apt-get .* gcc"
! grep -q libfuse3 "$dir/out" || fail "asks for what is optional"
