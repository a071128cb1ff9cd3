# oneDNN, which multiplies for the kernels' CPU backend. Not find_package(dnnl): Debian's config file
# asks for OpenCL's headers, which nothing of ours needs.
find_library(DNNL_LIBRARY dnnl)
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h)
if(DNNL_LIBRARY AND DNNL_INCLUDE_DIR)
  add_library(DNNL::dnnl UNKNOWN IMPORTED)
  set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
elseif(DCP_KERNELS_ALONE)
  message(STATUS "oneDNN is missing: the kernels are built without their CPU backend")
else()
  message(FATAL_ERROR "oneDNN is missing (Debian: libdnnl-dev)")
endif()
