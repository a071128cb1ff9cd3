#!/usr/bin/env bash
# A full disk: the save fails before data move, older steps stay intact, and once there is space the
# next save works. A save that may remove old steps for space removes them even if nothing is free,
# except steps that a reader holds, which it names. Uses a small tmpfs in a mount namespace of its
# own.
if [ "${1:-}" != mounted ]; then
    if [ "$(id -u)" -eq 0 ]; then set -- -m; else set -- -rm; fi
    unshare "$@" true 2>/dev/null || { echo "no mount namespace here"; exit 77; }
    exec unshare "$@" "$0" mounted
fi
. "$(dirname "$0")/crash_lib.sh"
mkdir "$dir/disk"
mount -t tmpfs -o size=26m none "$dir/disk" || { echo "no tmpfs here"; exit 77; }
store=$dir/disk/store

ranks 2 save "$store" 1 || fail "first save"
ranks 3 save "$store" 2 || fail "second save"
for layout in "" sharded; do
    status=0
    ranks 2 save "$store" 3 $layout || status=$?
    [ $status -eq 3 ] || fail "a full disk: exit $status"
    says "status -6: .*reserve space for .*No space left on device; free space"
    [ "$(ls -A "$store" | tr '\n' ' ')" = ".lock latest step-00000001 step-00000002 " ] ||
        fail "left-overs"
    ranks 2 check "$store" || fail "the older step"
    [ "$(cat "$dir/out")" = 2 ] || fail "another step"
done
rm -r "$store/step-00000001"
ranks 2 next "$store" || fail "room again"
[ "$(tail -1 "$dir/out")" = 3 ] || fail "step 3 is not there"

names() { ls "$store" | tr '\n' ' '; }
hold() { # STEP: a reader keeps it open until its input ends
    mkfifo "$dir/input"
    "$CRASH_STATE" hold "$store" "$1" <"$dir/input" >"$dir/held" 2>&1 &
    reader=$!
    exec 3>"$dir/input"
    until grep -q held "$dir/held"; do
        kill -0 $reader 2>/dev/null || fail "the reader: $(cat "$dir/held")"
        sleep 0.01
    done
}
let_go() {
    exec 3>&-
    wait $reader || fail "the step that was held: $(cat "$dir/held")"
    rm "$dir/input"
}

for layout in "" sharded; do # there is space for two steps; the last save makes its own space
    [ "$(names)" = "latest step-00000002 step-00000003 " ] || fail "other steps: $(names)"
    hold 2
    status=0
    ranks 2 save "$store" 4 room $layout || status=$?
    [ $status -eq 3 ] || fail "what is held was given up: exit $status"
    says "status -6: .*; readers hold step-00000002, which can't be given up"
    [ "$(names)" = "latest step-00000002 step-00000003 " ] || fail "other steps: $(names)"
    let_go
    head -c 30000000 /dev/zero >"$dir/disk/fill" 2>/dev/null && fail "the disk is not full"
    [ -z "$layout" ] || truncate -s -1M "$dir/disk/fill" # two files need a little more than one
    ranks 2 save "$store" 4 room $layout async || fail "no room was made"
    rm "$dir/disk/fill"
    says "step-00000002 is given up to make room"
    [ "$(names)" = "latest step-00000003 step-00000004 " ] || fail "other steps: $(names)"
    ranks 3 check "$store" || fail "the step that made room"
    [ "$(cat "$dir/out")" = 4 ] || fail "another step"
    rm -r "$store/step-00000004"
    ranks 2 save "$store" 2 replace || fail "step 2 again"
done
umount "$dir/disk"
