# LibTorch from the PyPI wheel in .venv, as plain imported libraries: torch's own CMake package
# insists on a CUDA toolkit when the wheel was built with CUDA.
set(MAREA_VENV ${PROJECT_SOURCE_DIR}/.venv CACHE PATH "Python environment that holds torch")
file(GLOB MAREA_TORCH_CANDIDATES ${MAREA_VENV}/lib/python3*/site-packages/torch)
if(NOT MAREA_TORCH_CANDIDATES)
  message(FATAL_ERROR "no torch in ${MAREA_VENV}: run `make setup`")
endif()
list(GET MAREA_TORCH_CANDIDATES 0 MAREA_TORCH_DIR)

add_library(marea_torch INTERFACE)
target_include_directories(marea_torch SYSTEM INTERFACE
  ${MAREA_TORCH_DIR}/include ${MAREA_TORCH_DIR}/include/torch/csrc/api/include)
target_link_libraries(marea_torch INTERFACE
  ${MAREA_TORCH_DIR}/lib/libtorch_cpu.so ${MAREA_TORCH_DIR}/lib/libc10.so)
# Torch brings a newer fmt in its headers, which come first; it is compiled into no library of ours.
target_compile_definitions(marea_torch INTERFACE FMT_HEADER_ONLY)
# RUNPATH: a binary carried to another machine finds its torch by LD_LIBRARY_PATH.
target_link_options(marea_torch INTERFACE -Wl,--enable-new-dtags)
set(CMAKE_BUILD_RPATH ${MAREA_TORCH_DIR}/lib)
