#!/usr/bin/env bash
# A system call of one rank fails during a save: all ranks report it and end, no step is published,
# no file is left, the old step loads, and the next save works. If a call is not essential, its
# failure does not matter.
. "$(dirname "$0")/crash_lib.sh"

fail_at() { # RANK CALL ERROR N TEXT [WORD]; with $below: only calls on that file
    fresh
    injected "$1" ${below:+-P "$below"} -e "trace=$2" -e "inject=$2:error=$3:when=$4" -- save "$store" 2 ${6:-}
    was_injected "$*"
    [ $status -eq 3 ] || fail "$*: exit $status"
    says "$5"
    cleaned "$@"
    loads 1
}

survives() { # RANK OPTIONS...
    local rank=$1
    shift
    fresh
    injected "$rank" "$@" -- save "$store" 2
    was_injected "$*"
    [ $status -eq 0 ] || fail "$*: exit $status"
    loads 2
}

# The first mkdirat is for the writer's folder, which is made again when it is needed.
fail_at 0 mkdirat EACCES 2 "status -7: rank 0: cannot make directory .*tmp-step-00000002.* denied"
fail_at 0 fallocate ENOSPC 1 "status -6: rank 0: reserve space for .*free space there"
fail_at 0 io_uring_enter EIO 1 "status -7: rank 0: write .*state.h5: Input/output error"
fail_at 1 io_uring_enter ENOSPC 1 "status -6: rank 1: write .*state.h5: No space left"
fail_at 0 fsync EIO 1 "status -7: rank 0: sync .*state.h5"
fail_at 1 fsync EIO 1 "status -7: rank 1: sync .*state.h5"
fail_at 0 fsync ENOSPC 2 "status -6: rank 0: .*about.json"
fail_at 0 fsync EIO 3 "status -7: rank 0: cannot sync .*tmp-step-00000002"
fail_at 0 renameat EIO 1 "status -7: rank 0: cannot rename"
fail_at 0 fsync EIO 4 "status -7: rank 0: cannot sync"
fail_at 1 fallocate ENOSPC 1 "status -6: rank 1: reserve space for .*shard-00001-of-00002" sharded
fail_at 1 fsync EIO 1 "status -7: rank 1: sync .*shard-00001-of-00002" sharded

# Engine mpio: HDF5 reports success when it flushes and closes a file whose data were lost.
below=$tmp/state.h5
fail_at 1 pwrite64 EIO 1 "status -7: rank 1: HDF5 can't write .*state.h5" mpio
fail_at 1 pwrite64 ENOSPC 3 "status -6: rank 1: HDF5 can't write .*state.h5" mpio
fail_at 0 pwrite64 ENOSPC 1 "status -6: rank 0: write .*state.h5" mpio
fail_at 1 openat EMFILE 2+ "status -7: rank 1: HDF5 can't open .*state.h5" mpio
below=

# Later calls of io_uring_enter send requests, or only wait and may be repeated.
for at in "0 2" "1 2" "0 5" "0 8"; do
    read -r rank n <<<"$at"
    fresh
    injected "$rank" -e trace=io_uring_enter -e "inject=io_uring_enter:error=EIO:when=$n" -- \
        save "$store" 2
    was_injected "io_uring_enter $at"
    if [ $status -eq 0 ]; then
        loads 2
    else
        says "status -7: rank $rank: write .*state.h5: Input/output error"
        cleaned "io_uring_enter $at"
        loads 1
    fi
done

# The step's file is opened by each rank that writes; if the kernel has no io_uring, it is written
# without it.
opened() {
    fresh
    injected 1 -P "$tmp/state.h5" -e trace=openat -e inject=openat:error=EMFILE -- \
        save "$store" 2
    was_injected "open"
    [ $status -eq 3 ] || fail "open: exit $status"
    says "status -7: rank 1: cannot open .*ulimit"
    cleaned "open"
    loads 1
}
opened
survives 1 -P "$tmp/state.h5" -e trace=fcntl -e inject=fcntl:error=EINVAL:when=2 # no O_DIRECT
survives 0 -e trace=memfd_create -e inject=memfd_create:error=EMFILE:when=1..2 # no shared memory
survives 0 -e trace=fallocate -e inject=fallocate:error=EOPNOTSUPP
survives 0 -e trace=fallocate -e inject=fallocate:error=EINTR:when=1
survives 0 -e trace=io_uring_setup -e inject=io_uring_setup:error=EPERM
survives 1 -e trace=io_uring_enter -e inject=io_uring_enter:error=EINTR:when=2
survives 0 -e trace=symlinkat -e inject=symlinkat:error=EPERM
