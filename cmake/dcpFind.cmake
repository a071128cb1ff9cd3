# Finds libraries without stopping at the first missing one: missing ones are collected in the global properties
# DCP_MISSING and DCP_MISSING_PACKAGES, so that all can be reported at once. Installed beside dcpConfig.cmake if
# dcpConfig.cmake looks for libraries.
find_package(PkgConfig QUIET)

function(dcp_note_missing what package)
  set_property(GLOBAL APPEND PROPERTY DCP_MISSING "${what} (Debian: ${package})")
  set_property(GLOBAL APPEND PROPERTY DCP_MISSING_PACKAGES ${package})
endfunction()

# dcp_find(NAME MODULE HEADER LIBRARY WHAT PACKAGE): defines the target PkgConfig::NAME from pkg-config's MODULE, or if that
# does not exist, from HEADER and LIBRARY.
function(dcp_find name module header library what package)
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(${name} QUIET IMPORTED_TARGET ${module})
  endif()
  if(TARGET PkgConfig::${name})
    return()
  endif()
  find_path(DCP_${name}_INCLUDE_DIR ${header})
  find_library(DCP_${name}_LIBRARY ${library})
  mark_as_advanced(DCP_${name}_INCLUDE_DIR DCP_${name}_LIBRARY)
  if(DCP_${name}_INCLUDE_DIR AND DCP_${name}_LIBRARY)
    add_library(PkgConfig::${name} INTERFACE IMPORTED)
    target_include_directories(PkgConfig::${name} INTERFACE ${DCP_${name}_INCLUDE_DIR})
    target_link_libraries(PkgConfig::${name} INTERFACE ${DCP_${name}_LIBRARY})
  else()
    dcp_note_missing("${what}" ${package})
  endif()
endfunction()
