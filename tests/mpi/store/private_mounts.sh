#!/usr/bin/env bash
# Private stores on real mounts: each rank has its own mount namespace, with its own tmpfs at the
# same path. If ranks that seem to be on several hosts all see one directory, they get an error that
# says so.
set -eu
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir "$root/node" "$root/shared"
if ! unshare -m sh -c 'mount -t tmpfs tmpfs "$1"' - "$root/node" 2> "$root/why"; then
    echo "no mount namespaces here: $(cat "$root/why")"
    exit 77
fi
# shellcheck disable=SC2086 # words
run() { $DCP_MPIRUN -n 3 unshare -m "$@"; }

# If the kernel is configured to count memory, the memory that ranks share is reserved.
echo 2 > "$root/counted"
# shellcheck disable=SC2016 # expanded by the inner shell
run sh -c 'mount -t tmpfs tmpfs "$1" && mount --bind "$3" /proc/sys/vm/overcommit_memory && exec "$2" "$1" counted' \
    - "$root/node" "$NODE_ALONE" "$root/counted"
[ -z "$(ls "$root/node")" ]

# shellcheck disable=SC2016
run sh -c 'echo "host-$OMPI_COMM_WORLD_RANK" > "$3.$OMPI_COMM_WORLD_RANK"
           mount --bind "$3.$OMPI_COMM_WORLD_RANK" /proc/sys/kernel/random/boot_id && exec "$2" "$1" shared' \
    - "$root/shared" "$NODE_ALONE" "$root/boot"
