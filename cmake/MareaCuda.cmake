# The CUDA language, its architectures, and marea_cuda: the static runtime.
if(NOT DEFINED ENV{CUDACXX} AND NOT CMAKE_CUDA_COMPILER)
  find_program(MAREA_NVCC nvcc HINTS /usr/local/cuda/bin)
  if(MAREA_NVCC)
    set(CMAKE_CUDA_COMPILER ${MAREA_NVCC})
  endif()
endif()

# TORCH_CUDA_ARCH_LIST as torch's users write it: "8.0;9.0+PTX" or "8.0 9.0a". Machine code for what
# is listed, PTX for what has +PTX, which later GPUs compile at load.
set(arch_list $ENV{TORCH_CUDA_ARCH_LIST})
if(NOT arch_list)
  set(arch_list "8.0;9.0+PTX")
endif()
string(REGEX REPLACE "[ ,]+" ";" arch_list "${arch_list}")
set(architectures)
foreach(arch IN LISTS arch_list)
  if(NOT arch MATCHES "^([0-9]+)\\.([0-9][af]?)(\\+PTX)?$")
    message(FATAL_ERROR "TORCH_CUDA_ARCH_LIST holds '${arch}': write compute capabilities, "
                        "e.g. \"8.0;9.0+PTX\"")
  endif()
  list(APPEND architectures ${CMAKE_MATCH_1}${CMAKE_MATCH_2}-real)
  if(CMAKE_MATCH_3)
    list(APPEND architectures ${CMAKE_MATCH_1}${CMAKE_MATCH_2}-virtual)
  endif()
endforeach()
set(CMAKE_CUDA_ARCHITECTURES ${architectures})
if(CCACHE_PROGRAM)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
enable_language(CUDA)
# CMake 3.25.1 knows no C++20 for nvcc, and asks for it because the C++ sources do.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
endif()
# From here on no target gets a runtime by being CUDA: marea_cuda names it. It is the static one, so
# that a program starts on a machine without CUDA; torch loads its own shared one, and both use the
# device's one primary context, so streams, events and pointers are good in either.
set(CMAKE_CUDA_RUNTIME_LIBRARY None)

# A toolkit holds it, and so does the wheel beside torch.
find_library(MAREA_CUDART_STATIC NAMES cudart_static libcudart_static.a
  HINTS ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES} ${MAREA_TORCH_DIR}/../nvidia/cu13/lib REQUIRED)
find_path(MAREA_CUDA_INCLUDE_DIR cuda_runtime.h
  HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} ${MAREA_TORCH_DIR}/../nvidia/cu13/include REQUIRED)
add_library(marea_cuda INTERFACE)
target_include_directories(marea_cuda SYSTEM INTERFACE ${MAREA_CUDA_INCLUDE_DIR})
target_link_libraries(marea_cuda INTERFACE ${MAREA_CUDART_STATIC} ${CMAKE_DL_LIBS} rt Threads::Threads)
target_compile_definitions(marea_cuda INTERFACE MAREA_CUDA=1)

# NCCL's header, from the wheel beside torch or a package; the library is loaded at run time.
find_path(MAREA_NCCL_INCLUDE_DIR nccl.h HINTS ${MAREA_TORCH_DIR}/../nvidia/nccl/include REQUIRED)
list(APPEND CMAKE_BUILD_RPATH ${MAREA_TORCH_DIR}/../nvidia/nccl/lib)
add_library(marea_nccl INTERFACE)
target_include_directories(marea_nccl SYSTEM INTERFACE ${MAREA_NCCL_INCLUDE_DIR})

message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION}, ${CMAKE_CUDA_ARCHITECTURES}, ${MAREA_CUDART_STATIC}")
