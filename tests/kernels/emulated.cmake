# The CUDA backend's own sources, compiled for the host if there is a C++ compiler. The threads of a
# kernel take turns on one thread, and simple loops replace cuBLASLt. This tests indexes, bounds,
# barriers and the arguments of cuBLASLt without a GPU.
include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER)
  enable_language(CXX)
  set(cuda ${PROJECT_SOURCE_DIR}/kernels/cuda)
  # Templates for every width of rows take long to compile, and little time to run.
  file(GLOB cuda_row_sources CONFIGURE_DEPENDS ${cuda}/arrays/*.cu ${cuda}/common/*.cu
    ${cuda}/layers/*.cu)
  file(GLOB cuda_sources CONFIGURE_DEPENDS ${cuda}/attention/*.cu ${cuda}/products/*.cu)
  list(APPEND cuda_sources ${cuda_row_sources})
  set_source_files_properties(${cuda_row_sources} PROPERTIES COMPILE_OPTIONS -O1)
  set_source_files_properties(${cuda_sources} PROPERTIES LANGUAGE CXX)
  add_library(kernel_emulated_backend OBJECT ${cuda_sources} ${cuda}/backend.c ${cuda}/memory.c ${cuda}/spans.c
    ${cuda}/products/blas_plan.c ${cuda}/products/matmul.c emulated/blas.c emulated/blas_product.c
    emulated/language.cpp emulated/runtime.c)
  target_compile_options(kernel_emulated_backend PUBLIC -O3 -ffp-contract=off
    -U_FORTIFY_SOURCE # it would report jumps between stacks as errors
    $<$<COMPILE_LANGUAGE:CXX>:-std=c++17 -Wall -Wextra -Wno-unused-function -Wno-unknown-pragmas -fno-strict-aliasing -fno-extern-tls-init>)
  target_include_directories(kernel_emulated_backend PUBLIC emulated
    ${PROJECT_SOURCE_DIR}/kernels ${PROJECT_SOURCE_DIR}/kernels/include)
  target_link_libraries(kernel_emulated_backend PRIVATE dcp_warnings m)

  # These two programs have no other backend.
  add_library(kernel_emulated_alone OBJECT ${PROJECT_SOURCE_DIR}/kernels/kernels.c)
  target_compile_definitions(kernel_emulated_alone PRIVATE KERNELS_CUDA)
  target_link_libraries(kernel_emulated_alone PRIVATE dcp_warnings PUBLIC kernels)
  add_executable(kernel_emulated)
  target_link_libraries(kernel_emulated PRIVATE dcp_warnings kernel_cases kernel_emulated_alone
    kernel_emulated_backend)
  add_test(NAME kernel_emulated COMMAND kernel_emulated cuda)
  add_executable(kernel_plans kernel_plans.c)
  target_link_libraries(kernel_plans PRIVATE dcp_warnings PkgConfig::CMOCKA kernel_emulated_alone
    kernel_emulated_backend)
  add_test(NAME kernel_plans COMMAND kernel_plans)
  add_executable(kernel_spans kernel_spans.c)
  target_link_libraries(kernel_spans PRIVATE dcp_warnings PkgConfig::CMOCKA kernel_emulated_alone
    kernel_emulated_backend)
  add_test(NAME kernel_spans COMMAND kernel_spans)
  set(emulated_tests kernel_emulated kernel_plans kernel_spans)

  # Whole models on this backend, compared with the CPU's.
  if(TARGET trainer_models)
    foreach(test golden packed talker)
      set(own ${PROJECT_SOURCE_DIR}/tests/trainer/model_${test}.c)
      if(DCP_MPI) # the other tests of the trainer are built, too, and share this object
        set(own $<TARGET_OBJECTS:model_${test}>)
      endif()
      add_executable(model_emulated_${test} ${own})
      target_compile_definitions(model_emulated_${test} PRIVATE _GNU_SOURCE
        TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
      target_include_directories(model_emulated_${test} PRIVATE ${PROJECT_SOURCE_DIR}/tests/trainer)
      target_link_libraries(model_emulated_${test} PRIVATE dcp_warnings PkgConfig::CMOCKA
        kernel_registry kernel_emulated_backend trainer_models dcp m)
      add_test(NAME model_emulated_${test} COMMAND model_emulated_${test} cuda)
      list(APPEND emulated_tests model_emulated_${test})
    endforeach()
  endif()
  set_tests_properties(${emulated_tests} PROPERTIES ENVIRONMENT "${DCP_TEST_ENV}"
    COST 20 TIMEOUT $<IF:$<BOOL:${DCP_SANITIZE}>,900,300>)
endif()
