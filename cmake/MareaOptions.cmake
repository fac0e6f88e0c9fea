# Compiler settings shared by every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # A clone in another folder finds the same objects.
  set(MAREA_CCACHE ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MAREA_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${MAREA_CCACHE})
endif()

add_library(marea_options INTERFACE)
target_include_directories(marea_options INTERFACE ${PROJECT_SOURCE_DIR})
# nvcc takes the host compiler's options through -Xcompiler. They do not reach device code: a source
# whose bits must equal the CPU's adds -fmad=false itself.
target_compile_options(marea_options INTERFACE
  "$<$<COMPILE_LANGUAGE:C,CXX>:SHELL:-Wall -Wextra -Werror -ffp-contract=off>"
  "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:--Werror all-warnings -Xcompiler=-Wall,-Wextra,-ffp-contract=off>")
find_package(Threads REQUIRED)
target_link_libraries(marea_options INTERFACE Threads::Threads)

if(MAREA_SANITIZE)
  add_compile_options(-fsanitize=${MAREA_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${MAREA_SANITIZE})
endif()

# marea_add_test(NAME SOURCES... LIBS...): one GoogleTest executable, registered with CTest.
function(marea_add_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  # Assertions expand to much code that runs once.
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  target_link_libraries(${name} PRIVATE marea_options ${ARG_LIBS} GTest::gtest GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  # Threads of a parallel region sleep instead of spinning when tests share the cores.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}"
    ENVIRONMENT OMP_WAIT_POLICY=PASSIVE)
endfunction()
