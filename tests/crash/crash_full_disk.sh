#!/usr/bin/env bash
# A full disk: the save fails before data moves, older steps stay intact, and once there is room
# the next save works. On a small tmpfs, in a mount namespace of its own.
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
umount "$dir/disk"
