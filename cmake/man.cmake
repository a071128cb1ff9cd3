# Man pages of section 3, made from the public headers' comments.
find_package(Python3 COMPONENTS Interpreter)
if(NOT Python3_FOUND)
  message(STATUS "Python is missing: there will be no man pages of the library's functions")
  return()
endif()
file(GLOB dcp_headers CONFIGURE_DEPENDS libdcp/include/dcp/*.h)
set(dcp_man3 ${PROJECT_BINARY_DIR}/man/man3)
add_custom_command(OUTPUT ${dcp_man3}/dcp.3
  COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/docs/man/section3.py
    ${PROJECT_SOURCE_DIR}/libdcp/include/dcp ${PROJECT_SOURCE_DIR}/docs/changelog.md
    ${PROJECT_VERSION} ${dcp_man3}
  DEPENDS docs/man/section3.py docs/changelog.md CMakeLists.txt ${dcp_headers}
  COMMENT "Making man pages of section 3" VERBATIM)
add_custom_target(man ALL DEPENDS ${dcp_man3}/dcp.3)
add_dependencies(programs man) # they are installed with the programs
install(DIRECTORY ${dcp_man3} DESTINATION ${CMAKE_INSTALL_MANDIR})
