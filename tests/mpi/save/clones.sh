#!/usr/bin/env bash
# clones.sh FILE-SYSTEM: runs save_clones on a loop-mounted image of that file system, in a mount
# namespace of its own.
set -euo pipefail
type=$1
[ "$(id -u)" -eq 0 ] || { echo "only root may mount an image"; exit 77; }
command -v "mkfs.$type" >/dev/null || { echo "no mkfs.$type"; exit 77; }
if [ "${2:-}" != mounted ]; then
    unshare -m true 2>/dev/null || { echo "no mount namespace here"; exit 77; }
    exec unshare -m "$0" "$type" mounted
fi
dir=$(mktemp -d "${TMPDIR:-/tmp}/dcp_clones.XXXXXX")
trap 'umount "$dir/disk" 2>/dev/null || true; rm -rf "$dir"' EXIT
mkdir "$dir/disk" "$dir/reference"
traced() { # LeakSanitizer cannot run under strace
    ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 \
        $DCP_MPIRUN -n 1 strace -f --seccomp-bpf -o "$dir/trace" "$@"
}
worlds="1 3"
[ "$type" = xfs ] || worlds=2
for ranks in $worlds; do
    truncate -s 400M "$dir/image"
    "mkfs.$type" -q "$dir/image" >/dev/null
    mount -o loop "$dir/image" "$dir/disk" || { echo "no loop mount of $type here"; exit 77; }
    $DCP_MPIRUN -n "$ranks" "$SAVE_CLONES" "$dir/disk" "$dir/reference"
    if [ "$ranks" -lt 3 ] && strace -o /dev/null true 2>/dev/null; then
        # The first call is the trial; two more share ranges.
        traced -P "$dir/disk/fails/.tmp-step-00000002/state.h5" -e trace=ioctl \
            -e inject=ioctl:error=EIO:when=3 "$SAVE_CLONES" "$dir/disk/fails" "$dir/reference" fails
        grep -q INJECTED "$dir/trace" || { echo "nothing was injected"; exit 1; }
    fi
    umount "$dir/disk"
    rm "$dir/image"
done
