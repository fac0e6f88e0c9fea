# Libraries from the distribution. What may be missing on another machine is linked statically or
# used as headers, so that the binary runs where the -dev packages are not installed.
find_package(nlohmann_json 3.10 REQUIRED)
find_package(CLI11 REQUIRED)
find_package(GTest REQUIRED)

find_path(LIBURING_INCLUDE_DIR liburing.h REQUIRED)
find_library(LIBURING_LIBRARY NAMES liburing.a REQUIRED)
add_library(marea_liburing INTERFACE)
target_include_directories(marea_liburing INTERFACE ${LIBURING_INCLUDE_DIR})
target_link_libraries(marea_liburing INTERFACE ${LIBURING_LIBRARY})

find_path(HWLOC_INCLUDE_DIR hwloc.h REQUIRED)
find_library(HWLOC_LIBRARY NAMES libhwloc.a REQUIRED)
# What the static hwloc needs. apt itself needs libudev, so it is on every machine; its -dev is not.
find_library(UDEV_LIBRARY NAMES libudev.so libudev.so.1 REQUIRED)
add_library(marea_hwloc INTERFACE)
target_include_directories(marea_hwloc INTERFACE ${HWLOC_INCLUDE_DIR})
target_link_libraries(marea_hwloc INTERFACE ${HWLOC_LIBRARY} ${UDEV_LIBRARY} ${CMAKE_DL_LIBS} m)

find_path(FMT_INCLUDE_DIR fmt/format.h REQUIRED)
add_library(marea_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/fmt_library.cc)
target_include_directories(marea_fmt SYSTEM PUBLIC ${FMT_INCLUDE_DIR})

find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
add_library(marea_xxhash INTERFACE)
target_include_directories(marea_xxhash INTERFACE ${XXHASH_INCLUDE_DIR})
target_compile_definitions(marea_xxhash INTERFACE XXH_INLINE_ALL)

find_path(HIGHWAY_INCLUDE_DIR hwy/highway.h REQUIRED)
