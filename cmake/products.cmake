# oneDNN and OpenBLAS, which multiply for the kernels' CPU backend. Not find_package(dnnl): Debian's
# config file asks for OpenCL's headers, which nothing of ours needs.
find_package(PkgConfig)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(OPENBLAS IMPORTED_TARGET openblas)
endif()
find_library(DNNL_LIBRARY dnnl)
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h)
if(DNNL_LIBRARY AND DNNL_INCLUDE_DIR AND OPENBLAS_FOUND)
  add_library(DNNL::dnnl UNKNOWN IMPORTED)
  set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
elseif(DCP_KERNELS_ALONE)
  message(STATUS "oneDNN or OpenBLAS is missing: the kernels are built without their CPU backend")
else()
  message(FATAL_ERROR "oneDNN or OpenBLAS is missing (Debian: libdnnl-dev, libopenblas-serial-dev)")
endif()
