! libdcp for Fortran 2008: communicators, states of Fortran arrays, saves and loads. Compile this file
! with the program, since a .mod file works with only one compiler: link the target dcp::fortran of
! find_package(dcp), or compile the file that `pkg-config --variable=fortran_module dcp` prints, and
! link with the output of `pkg-config --libs dcp`.
!
!     use dcp
!     use, intrinsic :: iso_c_binding
!     real(c_double), target :: u(rows, columns)      ! this rank's columns of a plate
!     type(dcp_comm) :: comm; type(dcp_state) :: state; type(dcp_store) :: store
!     call dcp_comm_from_fortran(MPI_COMM_WORLD, comm)    ! with mpi_f08: MPI_COMM_WORLD%MPI_VAL
!     call dcp_state_create(state)
!     call dcp_state_add_array(state, "/heat/u", "F64", shape=[rows, all_columns], data=c_loc(u), &
!                              start=[1_int64, first], count=shape(u, int64))
!     call dcp_store_open(comm, "ckpt", store)
!     call dcp_save(store, step, state)
!
! The C functions of the same names are documented in their headers and manual pages (dcp_save(3)
! and so on): what each call does, whether it is collective, and what it borrows. Here the optional
! `err` describes a failure: err%status is DCP_OK or less than 0, and dcp_error_text(err) is the
! message. Without `err`, a call that fails prints the message and executes `error stop`. The member
! `ptr` of each object is the C object, for functions that this module lacks.
module dcp
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int64, error_unit
    implicit none
    private

    public :: dcp_comm, dcp_state, dcp_store, dcp_checkpoint, dcp_saving, dcp_loading
    public :: dcp_error, dcp_error_text
    public :: dcp_comm_self, dcp_comm_from_fortran, dcp_comm_rank, dcp_comm_size, dcp_comm_destroy
    public :: dcp_state_create, dcp_state_add_array, dcp_state_destroy
    public :: dcp_store_open, dcp_store_continue_from, dcp_store_close
    public :: dcp_save, dcp_save_async, dcp_save_fence, dcp_save_is_done, dcp_save_cancel, dcp_save_wait
    public :: dcp_checkpoint_open, dcp_checkpoint_step, dcp_checkpoint_json, dcp_load
    public :: dcp_checkpoint_close, dcp_load_async, dcp_load_is_done, dcp_load_cancel, dcp_load_wait

    integer(c_int), parameter, public :: DCP_OK = 0, DCP_ERR_ARG = -1, DCP_ERR_MISMATCH = -2, &
        DCP_ERR_NOT_FOUND = -3, DCP_ERR_CORRUPT = -4, DCP_ERR_VERSION = -5, DCP_ERR_NO_SPACE = -6, &
        DCP_ERR_IO = -7, DCP_ERR_COMM = -8, DCP_ERR_NO_MEMORY = -9, DCP_ERR_UNSUPPORTED = -10, &
        DCP_ERR_STATE = -11, DCP_ERR_BUSY = -12, DCP_ERR_DEVICE = -13, DCP_ERR_CANCELLED = -14
    integer(c_int), parameter, public :: DCP_LAYOUT_GLOBAL = 0, DCP_LAYOUT_SHARDED = 1
    integer, parameter, public :: DCP_MAX_DIMS = 8

    type :: dcp_comm
        type(c_ptr) :: ptr = c_null_ptr
    end type
    type :: dcp_state
        type(c_ptr) :: ptr = c_null_ptr
    end type
    type :: dcp_store
        type(c_ptr) :: ptr = c_null_ptr
    end type
    type :: dcp_checkpoint
        type(c_ptr) :: ptr = c_null_ptr
    end type
    type :: dcp_saving
        type(c_ptr) :: ptr = c_null_ptr
    end type
    type :: dcp_loading
        type(c_ptr) :: ptr = c_null_ptr
    end type

    ! dcp_error of dcp/error.h, member by member.
    type, bind(C) :: dcp_error
        integer(c_int) :: status, rank
        character(kind=c_char) :: message(1024)
        integer(c_int) :: system_error, n_ranks, ranks(16)
        integer(c_int64_t) :: offset
        character(kind=c_char) :: tensor(1024 + 8), path(4096), reserved(256)
    end type

    type, bind(C) :: c_tensor
        type(c_ptr) :: path
        integer(c_int) :: dtype, ndim
        integer(c_int64_t) :: shape(DCP_MAX_DIMS)
    end type
    type, bind(C) :: c_box
        integer(c_int64_t) :: start(DCP_MAX_DIMS), count(DCP_MAX_DIMS)
    end type
    ! The first members of these structs; the library treats the others as 0.
    type, bind(C) :: c_store_options
        integer(c_size_t) :: size
        integer(c_int) :: keep, replace
    end type
    type, bind(C) :: c_save_options
        integer(c_size_t) :: size
        integer(c_int) :: layout, engine
    end type

    interface
        integer(c_int) function c_comm_self(out, err) bind(C, name="dcp_comm_self")
            import; type(c_ptr), intent(out) :: out; type(dcp_error), intent(inout) :: err
        end function
        integer(c_int) function c_comm_from_fortran(comm, out, err) bind(C, name="dcp_comm_from_fortran")
            import; integer(c_int), value :: comm
            type(c_ptr), intent(out) :: out; type(dcp_error), intent(inout) :: err
        end function
        integer(c_int) function c_comm_rank(comm) bind(C, name="dcp_comm_rank")
            import; type(c_ptr), value :: comm
        end function
        integer(c_int) function c_comm_size(comm) bind(C, name="dcp_comm_size")
            import; type(c_ptr), value :: comm
        end function
        subroutine c_comm_destroy(comm) bind(C, name="dcp_comm_destroy")
            import; type(c_ptr), value :: comm
        end subroutine
        integer(c_int) function c_dtype_parse(name, out) bind(C, name="dcp_dtype_parse")
            import; character(kind=c_char), intent(in) :: name(*); integer(c_int), intent(out) :: out
        end function
        integer(c_int64_t) function c_dtype_bytes(dtype) bind(C, name="dcp_dtype_bytes")
            import; integer(c_int), value :: dtype
        end function
        integer(c_int) function c_state_create(out, err) bind(C, name="dcp_state_create")
            import; type(c_ptr), intent(out) :: out; type(dcp_error), intent(inout) :: err
        end function
        integer(c_int) function c_state_add_strided(state, tensor, box, data, strides, err) &
                bind(C, name="dcp_state_add_strided")
            import; type(c_ptr), value :: state, data
            type(c_tensor), intent(in) :: tensor; type(c_box), intent(in) :: box
            integer(c_int64_t), intent(in) :: strides(*); type(dcp_error), intent(inout) :: err
        end function
        subroutine c_state_destroy(state) bind(C, name="dcp_state_destroy")
            import; type(c_ptr), value :: state
        end subroutine
        integer(c_int) function c_store_open(comm, dir, options, out, err) bind(C, name="dcp_store_open")
            import; type(c_ptr), value :: comm; character(kind=c_char), intent(in) :: dir(*)
            type(c_store_options), intent(in) :: options
            type(c_ptr), intent(out) :: out; type(dcp_error), intent(inout) :: err
        end function
        integer(c_int) function c_store_continue_from(store, step, err) &
                bind(C, name="dcp_store_continue_from")
            import; type(c_ptr), value :: store; integer(c_int64_t), value :: step
            type(dcp_error), intent(inout) :: err
        end function
        subroutine c_store_close(store) bind(C, name="dcp_store_close")
            import; type(c_ptr), value :: store
        end subroutine
        integer(c_int) function c_save(store, step, state, json, options, report, err) &
                bind(C, name="dcp_save")
            import; type(c_ptr), value :: store, state, json, report
            integer(c_int64_t), value :: step
            type(c_save_options), intent(in) :: options; type(dcp_error), intent(inout) :: err
        end function
        integer(c_int) function c_save_async(store, step, state, json, options, out, err) &
                bind(C, name="dcp_save_async")
            import; type(c_ptr), value :: store, state, json
            integer(c_int64_t), value :: step; type(c_save_options), intent(in) :: options
            type(c_ptr), intent(out) :: out; type(dcp_error), intent(inout) :: err
        end function
        subroutine c_save_fence(saving) bind(C, name="dcp_save_fence")
            import; type(c_ptr), value :: saving
        end subroutine
        integer(c_int) function c_save_is_done(saving) bind(C, name="dcp_save_is_done")
            import; type(c_ptr), value :: saving
        end function
        subroutine c_save_cancel(saving) bind(C, name="dcp_save_cancel")
            import; type(c_ptr), value :: saving
        end subroutine
        integer(c_int) function c_save_wait(saving, report, err) bind(C, name="dcp_save_wait")
            import; type(c_ptr), value :: saving, report; type(dcp_error), intent(inout) :: err
        end function
        integer(c_int) function c_checkpoint_open(comm, path, out, err) &
                bind(C, name="dcp_checkpoint_open")
            import; type(c_ptr), value :: comm; character(kind=c_char), intent(in) :: path(*)
            type(c_ptr), intent(out) :: out; type(dcp_error), intent(inout) :: err
        end function
        integer(c_int64_t) function c_checkpoint_step(ckpt) bind(C, name="dcp_checkpoint_step")
            import; type(c_ptr), value :: ckpt
        end function
        type(c_ptr) function c_checkpoint_json(ckpt) bind(C, name="dcp_checkpoint_json")
            import; type(c_ptr), value :: ckpt
        end function
        integer(c_int) function c_load(ckpt, state, report, err) bind(C, name="dcp_load")
            import; type(c_ptr), value :: ckpt, state, report
            type(dcp_error), intent(inout) :: err
        end function
        integer(c_int) function c_load_async(ckpt, state, options, out, err) bind(C, name="dcp_load_async")
            import; type(c_ptr), value :: ckpt, state, options
            type(c_ptr), intent(out) :: out; type(dcp_error), intent(inout) :: err
        end function
        integer(c_int) function c_load_is_done(loading) bind(C, name="dcp_load_is_done")
            import; type(c_ptr), value :: loading
        end function
        subroutine c_load_cancel(loading) bind(C, name="dcp_load_cancel")
            import; type(c_ptr), value :: loading
        end subroutine
        integer(c_int) function c_load_wait(loading, report, err) bind(C, name="dcp_load_wait")
            import; type(c_ptr), value :: loading, report; type(dcp_error), intent(inout) :: err
        end function
        subroutine c_checkpoint_close(ckpt) bind(C, name="dcp_checkpoint_close")
            import; type(c_ptr), value :: ckpt
        end subroutine
        integer(c_size_t) function c_strlen(text) bind(C, name="strlen")
            import; type(c_ptr), value :: text
        end function
    end interface

contains

    ! ---- errors ----

    ! Returns the message of a call that failed; "" after a call that did not fail.
    function dcp_error_text(err) result(text)
        type(dcp_error), intent(in) :: err
        character(:), allocatable :: text
        integer :: i
        text = ""
        if (err%status == DCP_OK) return
        do i = 1, size(err%message)
            if (err%message(i) == c_null_char) exit
            text = text // err%message(i)
        end do
    end function

    ! Passes the outcome of a call to the caller's `err`. Without `err`, a failure ends the program.
    subroutine finish(status, found, err)
        integer(c_int), intent(in) :: status
        type(dcp_error), intent(inout) :: found
        type(dcp_error), intent(out), optional :: err
        if (present(err)) then
            if (status /= DCP_OK) err = found
            err%status = status
        else if (status /= DCP_OK) then
            found%status = status
            write (error_unit, "(a)") "libdcp: " // dcp_error_text(found)
            error stop
        end if
    end subroutine

    ! Reports a mistake that only this module can detect.
    subroutine refuse(why, err, status)
        character(*), intent(in) :: why
        type(dcp_error), intent(out), optional :: err
        integer(c_int), intent(in), optional :: status
        type(dcp_error) :: found
        integer :: i
        found = dcp_error(status=DCP_ERR_ARG, rank=-1, message=c_null_char, system_error=0, n_ranks=0, &
                          ranks=0, offset=-1, tensor=c_null_char, path=c_null_char, reserved=c_null_char)
        do i = 1, min(len(why), size(found%message) - 1)
            found%message(i) = why(i:i)
        end do
        if (present(status)) found%status = status
        call finish(found%status, found, err)
    end subroutine

    ! ---- communicators ----

    ! Makes a communicator of one rank.
    subroutine dcp_comm_self(comm, err)
        type(dcp_comm), intent(out) :: comm
        type(dcp_error), intent(out), optional :: err
        type(dcp_error) :: found
        call finish(c_comm_self(comm%ptr, found), found, err)
    end subroutine

    ! Makes a communicator over a duplicate of the MPI communicator `mpi_comm`, an integer as in
    ! `use mpi`. Collective. Requires a libdcp that was built with MPI.
    subroutine dcp_comm_from_fortran(mpi_comm, comm, err)
        integer, intent(in) :: mpi_comm
        type(dcp_comm), intent(out) :: comm
        type(dcp_error), intent(out), optional :: err
        type(dcp_error) :: found
        call finish(c_comm_from_fortran(int(mpi_comm, c_int), comm%ptr, found), found, err)
    end subroutine

    integer function dcp_comm_rank(comm)
        type(dcp_comm), intent(in) :: comm
        dcp_comm_rank = int(c_comm_rank(comm%ptr))
    end function

    integer function dcp_comm_size(comm)
        type(dcp_comm), intent(in) :: comm
        dcp_comm_size = int(c_comm_size(comm%ptr))
    end function

    subroutine dcp_comm_destroy(comm)
        type(dcp_comm), intent(inout) :: comm
        call c_comm_destroy(comm%ptr)
        comm%ptr = c_null_ptr
    end subroutine

    ! ---- states ----

    subroutine dcp_state_create(state, err)
        type(dcp_state), intent(out) :: state
        type(dcp_error), intent(out), optional :: err
        type(dcp_error) :: found
        call finish(c_state_create(state%ptr, found), found, err)
    end subroutine

    ! Adds the part of a global array that this rank holds in an array of its own.
    !   dtype    the elements' type by name: "F64", "F32", "I64", "I32" ... (dcp_dtype_name)
    !   shape    of the global array, in the order of Fortran's dimensions
    !   data     c_loc of the first element of the part: u(1, 1), or the first one within ghost cells
    !   start    the part's first index in the global array, in which all indices begin at 1; default:
    !            [1, ...]
    !   count    the part's shape; default: `shape`. 0 in a dimension: this rank holds no part
    !   extents  the shape of the array in memory that contains the part, with ghost cells or padding;
    !            default: `count`
    !   reversed .true.: the tensor has its dimensions in reverse order, as HDF5's Fortran interface
    !            writes them: h5py shows u(i, j) as u[j-1, i-1], and the part is saved in the order in
    !            which it lies in memory, which is faster. .false., the default: h5py shows u(i, j) as
    !            u[i-1, j-1]
    ! The array must have the target attribute, and must exist until the state is destroyed.
    subroutine dcp_state_add_array(state, path, dtype, shape, data, start, count, extents, reversed, err)
        type(dcp_state), intent(in) :: state
        character(*), intent(in) :: path, dtype
        integer(int64), intent(in) :: shape(:)
        type(c_ptr), intent(in) :: data
        integer(int64), intent(in), optional :: start(:), count(:), extents(:)
        logical, intent(in), optional :: reversed
        type(dcp_error), intent(out), optional :: err
        character(kind=c_char), target :: name(len_trim(path) + 1)
        integer(int64) :: first(size(shape)), part(size(shape)), memory(size(shape))
        integer(c_int64_t) :: strides(DCP_MAX_DIMS), stride
        type(dcp_error) :: found
        type(c_tensor) :: tensor
        type(c_box) :: box
        integer :: d, n, at
        n = size(shape)
        if (n > DCP_MAX_DIMS) then
            call refuse(path // ": an array of over 8 dimensions", err)
            return
        end if
        select case (c_dtype_parse(c_text(dtype), tensor%dtype))
        case (DCP_OK)
        case (DCP_ERR_UNSUPPORTED)
            call refuse(path // ": libdcp leaves out the dtype " // dtype // " of safetensors", err, &
                        DCP_ERR_UNSUPPORTED)
            return
        case default
            call refuse(path // ": there is no dtype '" // dtype // "'; F64, F32, I64, I32 are some", err)
            return
        end select
        first = 1
        part = shape
        if (present(start)) call take(start, first)
        if (present(count)) call take(count, part)
        memory = part
        if (present(extents)) call take(extents, memory)
        if (n < 0) then
            call refuse(path // ": start, count and extents have an element for each of shape's", err)
            return
        end if
        if (any(shape < 0) .or. any(first < 1) .or. any(part < 0) .or. any(memory < part)) then
            call refuse(path // ": shape and count are at least 0, start 1, and extents count", err)
            return
        end if
        name(:) = c_text(path)
        tensor%path = c_loc(name)
        tensor%ndim = int(n, c_int)
        tensor%shape = 0
        box%start = 0
        box%count = 0
        if (n == 0) box%count(1) = 1
        strides = 0
        stride = c_dtype_bytes(tensor%dtype)
        do d = 1, n
            at = d
            if (present(reversed)) at = merge(n + 1 - d, d, reversed)
            tensor%shape(at) = shape(d)
            box%start(at) = first(d) - 1
            box%count(at) = part(d)
            strides(at) = stride
            stride = stride * memory(d)
        end do
        call finish(c_state_add_strided(state%ptr, tensor, box, data, strides, found), found, err)

    contains
        subroutine take(given, into) ! n becomes -1 if the lengths differ
            integer(int64), intent(in) :: given(:)
            integer(int64), intent(inout) :: into(:)
            if (size(given) /= size(into)) then
                n = -1
            else
                into = given
            end if
        end subroutine
    end subroutine

    subroutine dcp_state_destroy(state)
        type(dcp_state), intent(inout) :: state
        call c_state_destroy(state%ptr)
        state%ptr = c_null_ptr
    end subroutine

    ! ---- stores and saves ----

    !   keep     how many complete steps remain after a save; default: all
    !   replace  whether a save may replace a step; default: .false.
    subroutine dcp_store_open(comm, dir, store, keep, replace, err)
        type(dcp_comm), intent(in) :: comm
        character(*), intent(in) :: dir
        type(dcp_store), intent(out) :: store
        integer, intent(in), optional :: keep
        logical, intent(in), optional :: replace
        type(dcp_error), intent(out), optional :: err
        type(c_store_options) :: options
        type(dcp_error) :: found
        options = c_store_options(size=c_sizeof(options), keep=0, replace=0)
        if (present(keep)) options%keep = int(keep, c_int)
        if (present(replace)) options%replace = merge(1_c_int, 0_c_int, replace)
        call finish(c_store_open(comm%ptr, c_text(dir), options, store%ptr, found), found, err)
    end subroutine

    subroutine dcp_store_continue_from(store, step, err)
        type(dcp_store), intent(in) :: store
        integer(int64), intent(in) :: step
        type(dcp_error), intent(out), optional :: err
        type(dcp_error) :: found
        call finish(c_store_continue_from(store%ptr, step, found), found, err)
    end subroutine

    subroutine dcp_store_close(store)
        type(dcp_store), intent(inout) :: store
        call c_store_close(store%ptr)
        store%ptr = c_null_ptr
    end subroutine

    !   json    a JSON object to keep with the tensors; default: none
    !   layout  DCP_LAYOUT_GLOBAL (default) or DCP_LAYOUT_SHARDED
    subroutine dcp_save(store, step, state, json, layout, err)
        type(dcp_store), intent(in) :: store
        integer(int64), intent(in) :: step
        type(dcp_state), intent(in) :: state
        character(*), intent(in), optional :: json
        integer(c_int), intent(in), optional :: layout
        type(dcp_error), intent(out), optional :: err
        character(kind=c_char), allocatable, target :: text(:)
        type(c_ptr) :: address
        type(dcp_error) :: found
        call optional_text(json, text, address)
        call finish(c_save(store%ptr, step, state%ptr, address, save_options(layout), &
                           c_null_ptr, found), found, err)
    end subroutine

    ! Like dcp_save, but the program can continue meanwhile. The arrays must not change before
    ! dcp_save_fence. dcp_save_wait ends `saving`; its `err` is the outcome of the save.
    subroutine dcp_save_async(store, step, state, saving, json, layout, err)
        type(dcp_store), intent(in) :: store
        integer(int64), intent(in) :: step
        type(dcp_state), intent(in) :: state
        type(dcp_saving), intent(out) :: saving
        character(*), intent(in), optional :: json
        integer(c_int), intent(in), optional :: layout
        type(dcp_error), intent(out), optional :: err
        character(kind=c_char), allocatable, target :: text(:)
        type(c_ptr) :: address
        type(dcp_error) :: found
        call optional_text(json, text, address)
        call finish(c_save_async(store%ptr, step, state%ptr, address, save_options(layout), &
                                 saving%ptr, found), found, err)
    end subroutine

    subroutine dcp_save_fence(saving)
        type(dcp_saving), intent(in) :: saving
        call c_save_fence(saving%ptr)
    end subroutine

    ! Returns 1: done; 0: not yet; DCP_ERR_STATE: only the fence or the wait does the save.
    integer function dcp_save_is_done(saving)
        type(dcp_saving), intent(in) :: saving
        dcp_save_is_done = int(c_save_is_done(saving%ptr))
    end function

    ! Cancels the save: dcp_save_wait reports DCP_ERR_CANCELLED if this call came in time.
    subroutine dcp_save_cancel(saving)
        type(dcp_saving), intent(in) :: saving
        call c_save_cancel(saving%ptr)
    end subroutine

    subroutine dcp_save_wait(saving, err)
        type(dcp_saving), intent(inout) :: saving
        type(dcp_error), intent(out), optional :: err
        type(dcp_error) :: found
        type(c_ptr) :: ended
        ended = saving%ptr
        saving%ptr = c_null_ptr
        call finish(c_save_wait(ended, c_null_ptr, found), found, err)
    end subroutine

    ! ---- checkpoints and loads ----

    ! Opens a step; `path` is its folder, or a directory of steps, which means its newest step.
    subroutine dcp_checkpoint_open(comm, path, ckpt, err)
        type(dcp_comm), intent(in) :: comm
        character(*), intent(in) :: path
        type(dcp_checkpoint), intent(out) :: ckpt
        type(dcp_error), intent(out), optional :: err
        type(dcp_error) :: found
        call finish(c_checkpoint_open(comm%ptr, c_text(path), ckpt%ptr, found), found, err)
    end subroutine

    integer(int64) function dcp_checkpoint_step(ckpt)
        type(dcp_checkpoint), intent(in) :: ckpt
        dcp_checkpoint_step = c_checkpoint_step(ckpt%ptr)
    end function

    function dcp_checkpoint_json(ckpt) result(json)
        type(dcp_checkpoint), intent(in) :: ckpt
        character(:), allocatable :: json
        character(kind=c_char), pointer :: text(:)
        type(c_ptr) :: address
        integer :: i
        address = c_checkpoint_json(ckpt%ptr)
        call c_f_pointer(address, text, [c_strlen(address)])
        allocate (character(size(text)) :: json)
        do i = 1, size(text)
            json(i:i) = text(i)
        end do
    end function

    ! Fills the arrays of `state`, however they were distributed over the ranks that saved them.
    subroutine dcp_load(ckpt, state, err)
        type(dcp_checkpoint), intent(in) :: ckpt
        type(dcp_state), intent(in) :: state
        type(dcp_error), intent(out), optional :: err
        type(dcp_error) :: found
        call finish(c_load(ckpt%ptr, state%ptr, c_null_ptr, found), found, err)
    end subroutine

    ! Like dcp_load, but the program can continue meanwhile. It must not access the arrays before
    ! dcp_load_wait, whose `err` is the outcome of the load.
    subroutine dcp_load_async(ckpt, state, loading, err)
        type(dcp_checkpoint), intent(in) :: ckpt
        type(dcp_state), intent(in) :: state
        type(dcp_loading), intent(out) :: loading
        type(dcp_error), intent(out), optional :: err
        type(dcp_error) :: found
        call finish(c_load_async(ckpt%ptr, state%ptr, c_null_ptr, loading%ptr, found), found, err)
    end subroutine

    ! Returns 1: done; 0: not yet; DCP_ERR_STATE: only the wait does the load.
    integer function dcp_load_is_done(loading)
        type(dcp_loading), intent(in) :: loading
        dcp_load_is_done = int(c_load_is_done(loading%ptr))
    end function

    subroutine dcp_load_cancel(loading)
        type(dcp_loading), intent(in) :: loading
        call c_load_cancel(loading%ptr)
    end subroutine

    subroutine dcp_load_wait(loading, err)
        type(dcp_loading), intent(inout) :: loading
        type(dcp_error), intent(out), optional :: err
        type(dcp_error) :: found
        type(c_ptr) :: ended
        ended = loading%ptr
        loading%ptr = c_null_ptr
        call finish(c_load_wait(ended, c_null_ptr, found), found, err)
    end subroutine

    subroutine dcp_checkpoint_close(ckpt)
        type(dcp_checkpoint), intent(inout) :: ckpt
        call c_checkpoint_close(ckpt%ptr)
        ckpt%ptr = c_null_ptr
    end subroutine

    ! ---- text and options for C ----

    ! Returns the text without its trailing blanks, followed by a NUL.
    pure function c_text(text) result(chars)
        character(*), intent(in) :: text
        character(kind=c_char) :: chars(len_trim(text) + 1)
        integer :: i
        do i = 1, len_trim(text)
            chars(i) = text(i:i)
        end do
        chars(len_trim(text) + 1) = c_null_char
    end function

    ! Copies `text` to `chars`; `address` becomes the address of the copy, or NULL if there is no text.
    subroutine optional_text(text, chars, address)
        character(*), intent(in), optional :: text
        character(kind=c_char), allocatable, target, intent(out) :: chars(:)
        type(c_ptr), intent(out) :: address
        integer :: n
        n = 0
        if (present(text)) n = len_trim(text)
        allocate (chars(n + 1))
        if (present(text)) chars(:) = c_text(text)
        address = c_null_ptr
        if (n > 0) address = c_loc(chars)
    end subroutine

    type(c_save_options) function save_options(layout)
        integer(c_int), intent(in), optional :: layout
        save_options = c_save_options(size=c_sizeof(save_options), layout=DCP_LAYOUT_GLOBAL, engine=0)
        if (present(layout)) save_options%layout = layout
    end function
end module
