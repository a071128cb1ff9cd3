# Imported targets of the libraries we stand on. cmake/setup.sh installs Debian's packages of them.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
if(DCP_MPI)
  find_package(MPI REQUIRED COMPONENTS C)
  pkg_search_module(HDF5 REQUIRED IMPORTED_TARGET hdf5-openmpi hdf5-mpi hdf5)
else() # one rank, by a header of ours
  add_library(MPI::MPI_C INTERFACE IMPORTED)
  # not as a system folder, so that it comes first: a parallel HDF5 brings that of a real mpi.h
  target_compile_options(MPI::MPI_C INTERFACE -I${PROJECT_SOURCE_DIR}/libdcp/comm/alone)
  pkg_search_module(HDF5 REQUIRED IMPORTED_TARGET hdf5-serial hdf5 hdf5-openmpi hdf5-mpi)
  find_file(DCP_HDF5_PUBCONF NAMES H5pubconf.h H5pubconf-64.h HINTS ${HDF5_INCLUDE_DIRS}
    NO_CACHE NO_DEFAULT_PATH)
  if(DCP_HDF5_PUBCONF)
    file(STRINGS ${DCP_HDF5_PUBCONF} dcp_hdf5_parallel REGEX "^#define H5_HAVE_PARALLEL 1")
  endif()
  if(dcp_hdf5_parallel)
    message(WARNING "HDF5 (${HDF5_MODULE_NAME}) is a parallel one: libdcp will need MPI's library "
      "though it calls no MPI. A serial HDF5 (Debian: libhdf5-dev) mends that.")
  endif()
endif()
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing)
if(NOT DCP_LIBRARY_ALONE) # the trainer's tokenizers
  pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
  pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
endif()
if(DCP_TESTS)
  pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)
  if(NOT CMOCKA_FOUND)
    message(FATAL_ERROR "cmocka is missing, which the tests need: cmake/setup.sh --tests installs what "
      "they want (Debian: libcmocka-dev); -DDCP_TESTS=OFF builds without them")
  endif()
endif()
