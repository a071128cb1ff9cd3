# Imported targets of the libraries that we use. Reports all missing ones at once; cmake/setup.sh installs Debian's
# packages of them.
if(DCP_MPI)
  find_package(MPI COMPONENTS C)
else() # a header of ours, for one rank
  add_library(MPI::MPI_C INTERFACE IMPORTED)
  # not a system folder, so that it comes first: a parallel HDF5 adds the folder of a real mpi.h
  target_compile_options(MPI::MPI_C INTERFACE -I${PROJECT_SOURCE_DIR}/libdcp/comm/alone)
endif()
include(cmake/dcpLibraries.cmake)
if(NOT TARGET MPI::MPI_C)
  dcp_note_missing("MPI (-DDCP_MPI=OFF builds without)" libopenmpi-dev)
endif()
if(DCP_TRAINER) # matrix products on the CPU
  include(cmake/products.cmake)
endif()
if(DCP_TESTS)
  include(cmake/for_tests.cmake)
endif()

get_property(dcp_missing GLOBAL PROPERTY DCP_MISSING)
if(dcp_missing)
  get_property(dcp_packages GLOBAL PROPERTY DCP_MISSING_PACKAGES)
  list(JOIN dcp_missing "\n  " dcp_missing)
  list(JOIN dcp_packages " " dcp_packages)
  message(FATAL_ERROR "This is missing:\n  ${dcp_missing}\nDebian: apt-get install ${dcp_packages}\n"
    "-DDCP_TRAINER=OFF builds without dcp-train, -DBUILD_TESTING=OFF without tests; these need less.")
endif()

file(GLOB dcp_hdf5_headers LIST_DIRECTORIES false ${DCP_HDF5_INCLUDE_DIRS}/H5pubconf*.h)
