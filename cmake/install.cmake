# What `cmake --install` installs: headers, libdcp, programs, their man pages and bash completion,
# licence and documents, examples, a CMake package (find_package(dcp 1.0), targets dcp::dcp and
# dcp::fortran) and dcp.pc.
include(CMakePackageConfigHelpers)

install(TARGETS dcp dcp_fortran EXPORT dcpTargets)
set(dcp_other_headers)
if(NOT DCP_MPI)
  set(dcp_other_headers PATTERN mpi.h EXCLUDE) # that one is for programs with MPI
endif()
install(DIRECTORY libdcp/include/ TYPE INCLUDE FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp"
  ${dcp_other_headers})
install(FILES libdcp/fortran/dcp.f90 DESTINATION ${CMAKE_INSTALL_DATADIR}/dcp) # .mod files depend on the compiler
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DATADIR}/dcp USE_SOURCE_PERMISSIONS
  PATTERN quickstart.sh EXCLUDE PATTERN __pycache__ EXCLUDE) # quickstarts build the source tree
install(FILES cmake/mpi-env.sh DESTINATION ${CMAKE_INSTALL_DATADIR}/dcp)
install(FILES LICENSE README.md TYPE DOC)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs FILES_MATCHING PATTERN "*.md" PATTERN "*.svg"
  PATTERN man EXCLUDE PATTERN completion EXCLUDE) # where the README's links point
install(TARGETS dcp-run) # reshard/ installs its programs

file(GLOB dcp_man_pages CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/docs/man docs/man/*.1)
if(DCP_TRAINER)
  install(TARGETS dcp-train)
  install(DIRECTORY docs/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man5 FILES_MATCHING PATTERN "*.5")
else()
  list(REMOVE_ITEM dcp_man_pages dcp-train.1)
endif()
foreach(page ${dcp_man_pages}) # one page per program; bash finds completions by the program's name
  install(FILES docs/man/${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  string(REPLACE ".1" "" program ${page})
  install(FILES docs/completion/dcp.bash RENAME ${program}
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
endforeach()

set(dcp_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/dcp)
install(EXPORT dcpTargets NAMESPACE dcp:: DESTINATION ${dcp_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/dcpConfigVersion.cmake
  COMPATIBILITY SameMajorVersion)
configure_file(cmake/dcpConfig.cmake.in dcpConfig.cmake @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/dcpConfig.cmake ${PROJECT_BINARY_DIR}/dcpConfigVersion.cmake
  DESTINATION ${dcp_package_dir})
if(NOT BUILD_SHARED_LIBS) # users of a static libdcp link what it needs
  install(FILES cmake/dcpFind.cmake cmake/dcpHDF5.cmake cmake/dcpLibraries.cmake DESTINATION ${dcp_package_dir})
endif()

# dcp.pc uses paths relative to itself, so the installed tree can be moved.
set(dcp_pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH dcp_pc_to_prefix /prefix/${dcp_pc_dir} /prefix)
include(cmake/dcp_pc.cmake)
configure_file(cmake/dcp.pc.in dcp.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/dcp.pc DESTINATION ${dcp_pc_dir})
