# The CUDA backend's own sources on the host, where a C++ compiler is: its kernels' threads take turns
# on one thread, and simple loops stand for cuBLAS. It proves indexes, bounds and barriers without a GPU.
include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER)
  enable_language(CXX)
  set(cuda ${PROJECT_SOURCE_DIR}/kernels/cuda)
  set(cuda_sources ${cuda}/attention.cu ${cuda}/attention_bf16.cu ${cuda}/attention_fp32.cu
    ${cuda}/attention_rows.cu ${cuda}/elementwise.cu ${cuda}/rows.cu)
  set_source_files_properties(${cuda_sources} PROPERTIES LANGUAGE CXX)
  add_executable(kernel_emulated ${kernel_conformance_sources} ${cuda_sources} ${cuda}/backend.c
    ${cuda}/matmul.c emulated/blas.c emulated/language.cpp emulated/runtime.c
    ${PROJECT_SOURCE_DIR}/kernels/registry.c ${PROJECT_SOURCE_DIR}/kernels/rope_table.c)
  target_compile_definitions(kernel_emulated PRIVATE KERNELS_CUDA)
  target_compile_options(kernel_emulated PRIVATE -O3 -ffp-contract=off
    -U_FORTIFY_SOURCE # which takes a jump between stacks for a mistake
    $<$<COMPILE_LANGUAGE:CXX>:-std=c++17 -Wall -Wextra -Wno-unused-function -Wno-unknown-pragmas -fno-strict-aliasing -fno-extern-tls-init>)
  target_include_directories(kernel_emulated PRIVATE emulated ${cuda}
    ${PROJECT_SOURCE_DIR}/kernels/include)
  target_link_libraries(kernel_emulated PRIVATE dcp_warnings PkgConfig::CMOCKA m)
  add_test(NAME kernel_emulated COMMAND kernel_emulated cuda)
  set_tests_properties(kernel_emulated PROPERTIES ENVIRONMENT "${DCP_TEST_ENV}" TIMEOUT 120)
endif()
