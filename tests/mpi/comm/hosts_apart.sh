#!/usr/bin/env bash
# Ranks with separate mount namespaces, each with its own /dev/shm, count as ranks of different
# hosts.
set -eu
if ! why=$(unshare -m sh -c 'mount -t tmpfs tmpfs /dev/shm' 2>&1); then
    echo "no mount namespaces here: $why"
    exit 77
fi
# shellcheck disable=SC2086 # words
OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo $DCP_MPIRUN -n 3 \
    unshare -m sh -c 'mount -t tmpfs tmpfs /dev/shm && exec "$1" apart' - "$COMM_HOSTS"
