# To be sourced: the environment that Open MPI needs to run ranks on one machine, in scripts and by hand.
export OMP_NUM_THREADS=1
if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# Containers with a seccomp filter often refuse process_vm_readv, and then Open MPI warns about every
# large message. Plain shared memory is slower and always works.
if grep -q '^Seccomp:[[:space:]]*2' /proc/self/status; then
    export OMPI_MCA_btl_vader_single_copy_mechanism=none
fi
# When the last mpirun ends, it removes the folder of all sessions, and an mpirun that starts at that
# moment fails ("unable to create the desired directory"). A folder that is not empty is not removed.
mkdir -p "${TMPDIR:-/tmp}/ompi.$(uname -n | cut -d. -f1).$(id -u)/kept" 2>/dev/null || true
