#!/usr/bin/env bash
# bare.sh SUITE DIR [PART...]: what a newcomer experiences on a bare machine. Makes a minbase system of Debian's SUITE
# (bookworm, trixie) in DIR by debootstrap. Each PART runs in a fresh copy of it, from a clean clone:
#   root    examples/quickstart.sh as the first command, as root
#   user    the same as an ordinary user: it prints a command, which root runs, and then works
#   readme  the examples of the documents that require no other package (readme.sh), as that user
#   quick   tests/run.sh --quick as that user
#   full    the whole suite as root (an hour)
# Without PART: root, user, readme and quick. Prints one line per part: seconds, those of apt separately, and the
# system's size; the output is in DIR/SUITE-PART.log. An existing minbase system in DIR is used again. KEEP=1 keeps the
# copies, too. Exit: 0 all worked; 1 something failed; 77 skipped: requires root, debootstrap and a mirror of Debian.
set -euo pipefail

if [ $# -lt 2 ]; then
    sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
fi
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
suite=$1
mkdir -p -- "$2"
dir=$(cd "$2" && pwd)
shift 2
[ $# -gt 0 ] || set -- root user readme quick
. "$source/tests/systems/systems_lib.sh"

stamp() { # prefixes each line with the seconds since SECONDS was 0
    local line
    while IFS= read -r line; do printf '%5d  %s\n' $SECONDS "$line"; done
}

# follow USER COMMAND: runs COMMAND, writes its output with times to the part's log, and returns its
# status.
follow() {
    SECONDS=0
    within "$@" 2>&1 </dev/null | stamp >>"$log"
}

# Makes a user's machine ready by the printed command alone. Sets apt_s.
install_by_printed_command() { # COMMAND: prints the command to run
    local status=0 printed
    follow user "$1" || status=$?
    printed=$(sed -n 's/^ *[0-9]*  *sudo \(apt-get .*\)/\1/p' "$log")
    [ "$status" -eq 2 ] && [ -n "$printed" ] || return 1
    printed=${printed//sudo /}
    follow root "$printed" || return 1
    apt_s=$SECONDS
}

said_at() { awk -v line="$1" 'index($0, line) == 8 { print $1; exit }' "$log"; }

try_root() {
    fresh_system root
    follow root examples/quickstart.sh || return 1
    apt_s=$(said_at "== Building")
    rest_s=$((SECONDS - apt_s))
}

try_user() {
    fresh_system user
    install_by_printed_command examples/quickstart.sh || return 1
    follow user examples/quickstart.sh || return 1
    rest_s=$SECONDS
}

try_readme() {
    fresh_system user
    install_by_printed_command cmake/setup.sh || return 1
    follow user "tests/systems/readme.sh" || return 1
    rest_s=$SECONDS
}

try_quick() {
    fresh_system user
    install_by_printed_command "tests/run.sh --quick" || return 1
    follow user "tests/run.sh --quick" || return 1
    rest_s=$SECONDS
}

try_full() {
    fresh_system root
    follow root "cmake/setup.sh --tests" || return 1
    apt_s=$SECONDS
    follow root "tests/run.sh" || return 1
    rest_s=$SECONDS
}

make_base
failed=0
for part; do
    log=$dir/$suite-$part.log
    : >"$log"
    if "try_$part"; then
        echo "$suite $part: apt $apt_s s, the rest $rest_s s, $(du -sm "$system" | cut -f 1) MB"
    else
        failed=1
        echo "$suite $part: FAILED; the end of $log:"
        tail -n 20 "$log"
    fi
    [ "${KEEP:-}" ] || rm -rf "$system"
done
exit $failed
