# DCP_CUDA=ON builds the code that computes on NVIDIA's GPUs and saves from their memory.
option(DCP_CUDA "Build for NVIDIA GPUs (experimental: no GPU has run it)" OFF)
if(DCP_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90 CACHE STRING "GPU architectures to compile for")
  endif()
  if(NOT DEFINED ENV{CUDACXX})
    find_program(CMAKE_CUDA_COMPILER nvcc PATHS /usr/local/cuda/bin)
  endif()
  enable_language(CUDA)
  set(architectures ${CMAKE_CUDA_ARCHITECTURES})
  if(architectures MATCHES "^(native|all|all-major)$")
    string(TOUPPER ${architectures} which)
    string(REPLACE - _ which ${which})
    set(architectures ${CMAKE_CUDA_ARCHITECTURES_${which}})
  endif()
  foreach(architecture IN LISTS architectures)
    if(architecture MATCHES "^([0-9]+)" AND CMAKE_MATCH_1 LESS 80)
      message(FATAL_ERROR "The CUDA backend needs a GPU of architecture 80 or newer, not ${architecture}: choose with CMAKE_CUDA_ARCHITECTURES, or leave it out with DCP_CUDA=OFF")
    endif()
  endforeach()
endif()

# The folders of NVIDIA's Python packages, which PyTorch installs: they have what a toolkit may lack.
set(DCP_CUDA_WHEELS)
if(DCP_CUDA)
  execute_process(COMMAND python3 -c "import nvidia; print(*nvidia.__path__, sep=';')"
    OUTPUT_VARIABLE folders OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(status EQUAL 0)
    foreach(folder IN LISTS folders)
      file(GLOB found LIST_DIRECTORIES true ${folder}/*)
      list(APPEND DCP_CUDA_WHEELS ${found})
    endforeach()
  endif()
endif()

# dcp_find_cuda_library(PREFIX HEADER LIBRARY VERSION): sets PREFIX_INCLUDE_DIR and PREFIX_LIBRARY, from the toolkit or
# otherwise from NVIDIA's Python packages, in which the library's name includes its version.
macro(dcp_find_cuda_library prefix header library version)
  find_path(${prefix}_INCLUDE_DIR ${header} HINTS ${CUDAToolkit_INCLUDE_DIRS}
    PATHS ${DCP_CUDA_WHEELS} PATH_SUFFIXES include)
  find_library(${prefix}_LIBRARY NAMES ${library} lib${library}.so.${version}
    HINTS ${CUDAToolkit_LIBRARY_DIR} PATHS ${DCP_CUDA_WHEELS} PATH_SUFFIXES lib)
endmacro()
