! An array that is divided by columns among any number of ranks, with ghost columns at both sides: saved,
! saved in the background, and loaded again in both ways, with libdcp's Fortran module.
!
!     mpirun --oversubscribe -n N columns DIR
!
! WITHOUT_MPI: for a libdcp without MPI; then there is one process.
program columns
    use dcp
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int64
#ifndef WITHOUT_MPI
    use mpi
#endif
    implicit none
    integer(int64), parameter :: rows = 40, all_columns = 101
    type(dcp_comm) :: comm
    type(dcp_state) :: state
    type(dcp_store) :: store
    type(dcp_saving) :: saving
    type(dcp_loading) :: loading
    type(dcp_checkpoint) :: ckpt
    type(dcp_error) :: err
    real(c_double), allocatable, target :: u(:, :) ! our columns, between two ghost columns
    integer(c_int32_t), target :: counts(3)
    integer(int64) :: first, mine, newest
    character(1000) :: dir
    integer :: ierr

    call get_command_argument(1, dir)
    if (dir == "" .or. dir(1:1) == "-") error stop "usage: columns DIR"
#ifndef WITHOUT_MPI
    call MPI_Init(ierr)
    call dcp_comm_from_fortran(MPI_COMM_WORLD, comm)
#else
    call dcp_comm_self(comm)
#endif
    first = all_columns * dcp_comm_rank(comm) / dcp_comm_size(comm) + 1
    mine = all_columns * (dcp_comm_rank(comm) + 1) / dcp_comm_size(comm) + 1 - first
    allocate (u(rows, 0:mine + 1))
    call fill(1)
    counts = [1, 2, 3]

    call dcp_state_create(state)
    call dcp_state_add_array(state, "/heat/u", "F64", shape=[rows, all_columns], data=c_loc(u(1, 1)), &
                             start=[1_int64, first], count=[rows, mine], extents=shape(u, int64))
    ! the dimensions in reverse order, as in HDF5's Fortran interface
    call dcp_state_add_array(state, "/heat/transposed", "F64", shape=[rows, all_columns], &
                             data=c_loc(u(1, 1)), start=[1_int64, first], count=[rows, mine], &
                             extents=shape(u, int64), reversed=.true.)
    call dcp_state_add_array(state, "/heat/counts", "I32", shape=[3_int64], data=c_loc(counts))

    call dcp_store_open(comm, trim(dir), store, keep=2)
    call dcp_save(store, 1_int64, state, json='{"dt": 0.5}')
    call dcp_save_async(store, 2_int64, state, saving, layout=DCP_LAYOUT_SHARDED)
    call dcp_save_fence(saving) ! from here on u may change
    call fill(0)
    call dcp_save_wait(saving)

    call dcp_save(store, 2_int64, state, err=err) ! a failure that the program itself handles
    if (err%status /= DCP_ERR_STATE .or. dcp_error_text(err) == "") error stop "step 2 was saved twice"
    call dcp_state_add_array(state, "/heat/bad", "F77", shape=[3_int64], data=c_loc(counts), err=err)
    if (err%status /= DCP_ERR_ARG .or. index(dcp_error_text(err), "F77") == 0) error stop "F77 is a dtype"
    call dcp_store_close(store)

    call dcp_checkpoint_open(comm, trim(dir), ckpt)
    newest = dcp_checkpoint_step(ckpt)
    if (index(dcp_checkpoint_json(ckpt), '"step"') == 0) error stop "its JSON lacks the step"
    counts = 0
    call dcp_load(ckpt, state)
    call compare()
    call fill(0)
    call dcp_load_async(ckpt, state, loading) ! until the wait, u belongs to the load
    call dcp_load_wait(loading)
    call dcp_checkpoint_close(ckpt)
    call compare()
    if (dcp_comm_rank(comm) == 0) print "(a, i0, a, i0)", "Fortran on ", dcp_comm_size(comm), &
        ", back at step ", newest

    call dcp_state_destroy(state)
    call dcp_comm_destroy(comm)
#ifndef WITHOUT_MPI
    call MPI_Finalize(ierr)
#endif

contains

    ! Fills in u(i, j) of the whole array, or 0 everywhere; ghost columns are 0.
    subroutine fill(factor)
        integer, intent(in) :: factor
        integer(int64) :: i, j
        u = 0
        do j = 1, mine
            do i = 1, rows
                u(i, j) = real(factor * (1000 * i + first + j - 1), c_double)
            end do
        end do
    end subroutine

    subroutine compare()
        real(c_double) :: loaded(rows, 0:mine + 1)
        loaded = u
        call fill(1)
        if (any(loaded /= u) .or. any(counts /= [1, 2, 3])) error stop "other values came back"
    end subroutine
end program
