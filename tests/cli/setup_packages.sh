#!/usr/bin/env bash
# cmake/setup.sh if packages are installed, missing, or not available; dpkg-query, apt-get and id
# are stand-ins that read a list of the installed packages.
set -euo pipefail
setup=$DCP_SOURCE/cmake/setup.sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export DCP_SETUP_TRIED=$dir/tried DCP_SETUP_LOG=$dir/log STATE=$dir PATH=$dir/bin:$PATH
mkdir "$dir/bin"
cat >"$dir/bin/dpkg-query" <<'END'
#!/bin/sh
grep -qx "$4" "$STATE/installed" && echo installed
END
cat >"$dir/bin/apt-get" <<'END'
#!/bin/bash
echo "$1" >>"$STATE/calls"
echo "words of apt-get $1"
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
run() { # EXPECTED-STATUS OPTIONS...
    local status=0
    : >"$dir/calls"
    "$setup" "${@:2}" >"$dir/out" 2>&1 || status=$?
    [ $status -eq "$1" ] || fail "exit $status, not $1"
}
calls() { [ "$(sort -u "$dir/calls" | tr '\n' ' ')" = "$1" ] || fail "calls: $(cat "$dir/calls")"; }
says() { grep -q -- "$1" "$dir/out" || fail "not said: $1"; }
is_silent_about() { ! grep -q -- "$1" "$dir/out" || fail "said: $1"; }
has() { grep -qx "$1" "$dir/installed" || fail "$1 is not installed"; }
has_not() { ! grep -qx "$1" "$dir/installed" || fail "$1 is installed"; }

echo 0 >"$dir/uid"
touch "$dir/installed"
run 0 # a bare machine: installs what building and running require
has gcc && has python3-h5py
for package in libcmocka-dev gdb fio munge libfuse3-dev; do has_not $package; done
says "the log is $dir/log"
is_silent_about "words of apt-get"
grep -qx "words of apt-get install" "$dir/log" || fail "apt-get's words are not in the log"
run 0 --tests # also installs what tests require
has libcmocka-dev && has libfuse3-dev
for options in "" --tests; do
    run 0 $options # everything is installed
    calls ""
    [ ! -s "$dir/out" ] || fail "it says something"
done
run 2 --test
says "not: --test"
run 0 --help
says "setup.sh --tests"

without() { # NAME
    grep -vx "$1" "$dir/installed" >"$dir/rest" && mv "$dir/rest" "$dir/installed"
}
without libfuse3-dev # an optional package is missing, and available
run 0 --tests
calls "install update "
has libfuse3-dev

without libfuse3-dev # it is not available: reported once, and not tried again
echo libfuse3-dev >"$dir/refused"
run 0 --tests
says "libfuse3-dev cannot be installed"
run 0 --tests
calls ""

rm "$DCP_SETUP_TRIED" "$dir/refused" # without a network, too
touch "$dir/offline"
echo libfuse3-dev >"$dir/refused"
run 0 --tests
without gcc # a required package is missing
run 100
says "the end of $dir/log"
says "words of apt-get install"
rm "$dir/offline"
run 0 --tests
has gcc

echo 1000 >"$dir/uid" # without root: requests only packages that are missing and required
rm "$DCP_SETUP_TRIED"
run 0 --tests
calls ""
without gcc
without libcmocka-dev
run 2
says "sudo apt-get .* --no-install-recommends gcc$"
run 2 --tests
says "sudo apt-get .* --no-install-recommends gcc libcmocka-dev$"
