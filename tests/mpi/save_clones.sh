#!/usr/bin/env bash
# save_clones.sh FILE-SYSTEM: save_clones on a loop-mounted image of that file system, in a mount
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
worlds="1 3"
[ "$type" = xfs ] || worlds=2
for ranks in $worlds; do
    truncate -s 400M "$dir/image"
    "mkfs.$type" -q "$dir/image" >/dev/null
    mount -o loop "$dir/image" "$dir/disk" || { echo "no loop mount of $type here"; exit 77; }
    $DCP_MPIRUN -n $ranks "$SAVE_CLONES" "$dir/disk" "$dir/reference"
    umount "$dir/disk"
    rm "$dir/image"
done
