# The libraries that libdcp links, as targets: for its build, and, installed beside dcpConfig.cmake, for users of a
# static libdcp.
include(${CMAKE_CURRENT_LIST_DIR}/dcpFind.cmake)
get_property(dcp_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
if("C" IN_LIST dcp_languages OR "CXX" IN_LIST dcp_languages)
  find_package(Threads REQUIRED)
elseif(NOT TARGET Threads::Threads) # FindThreads supports only C and C++
  add_library(Threads::Threads INTERFACE IMPORTED)
  target_link_options(Threads::Threads INTERFACE -pthread)
endif()
include(${CMAKE_CURRENT_LIST_DIR}/dcpHDF5.cmake)
dcp_find(ISAL libisal isa-l/crc64.h isal "ISA-L" libisal-dev)
dcp_find(JANSSON jansson jansson.h jansson "Jansson" libjansson-dev)
dcp_find(URING liburing liburing.h uring "liburing" liburing-dev)
