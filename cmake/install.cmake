# What `cmake --install` gives: headers, libdcp, programs, a CMake package (find_package(dcp),
# target dcp::dcp) and dcp.pc.
include(CMakePackageConfigHelpers)

install(TARGETS dcp EXPORT dcpTargets)
install(DIRECTORY libdcp/include/ TYPE INCLUDE FILES_MATCHING PATTERN "*.h")
install(TARGETS dcp-train dcp-run) # reshard/ installs its own

set(dcp_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/dcp)
install(EXPORT dcpTargets NAMESPACE dcp:: DESTINATION ${dcp_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/dcpConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES cmake/dcpConfig.cmake ${PROJECT_BINARY_DIR}/dcpConfigVersion.cmake
  DESTINATION ${dcp_package_dir})

# dcp.pc finds the rest from its own place, so that the installed tree can move.
set(dcp_pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH dcp_pc_to_prefix /prefix/${dcp_pc_dir} /prefix)
pkg_search_module(DCP_MPI_PC QUIET ompi-c mpich)
configure_file(cmake/dcp.pc.in dcp.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/dcp.pc DESTINATION ${dcp_pc_dir})
