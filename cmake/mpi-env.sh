# To be sourced: what Open MPI needs to run the ranks of one machine, in scripts and by hand.
export OMP_NUM_THREADS=1
if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# Containers with a seccomp filter often refuse process_vm_readv, and Open MPI then complains at
# every large message; shared memory alone is slower and always works.
if grep -q '^Seccomp:[[:space:]]*2' /proc/self/status; then
    export OMPI_MCA_btl_vader_single_copy_mechanism=none
fi
# An mpirun that ends removes the folder of all sessions where it is the last, and one that begins at
# that moment fails ("unable to create the desired directory"): so there is something in it.
mkdir -p "${TMPDIR:-/tmp}/ompi.$(uname -n | cut -d. -f1).$(id -u)/kept" 2>/dev/null || true
