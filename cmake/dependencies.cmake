# Where the libraries come from: LibTorch and Arrow from the wheels in .venv, the rest from Debian.
find_package(Threads REQUIRED)

set(REDLINE_VENV "${CMAKE_SOURCE_DIR}/.venv" CACHE PATH "Virtual environment with torch and pyarrow")
file(GLOB REDLINE_SITE "${REDLINE_VENV}/lib/python3*/site-packages")
if(NOT EXISTS "${REDLINE_SITE}/torch/share/cmake")
  message(FATAL_ERROR "LibTorch was not found in ${REDLINE_VENV}: run 'make venv' first.")
endif()

# We need LibTorch's headers and libraries, nothing its package file adds (it looks for CUDA, kineto, protobuf).
add_library(redline_torch INTERFACE)
target_include_directories(redline_torch SYSTEM INTERFACE
  "${CMAKE_SOURCE_DIR}/cmake/narrow" "${REDLINE_SITE}/torch/include" "${REDLINE_SITE}/torch/include/torch/csrc/api/include")
target_link_libraries(redline_torch INTERFACE
  "${REDLINE_SITE}/torch/lib/libtorch.so" "${REDLINE_SITE}/torch/lib/libtorch_cpu.so" "${REDLINE_SITE}/torch/lib/libc10.so")
target_link_libraries(redline_torch INTERFACE redline_fmt)
file(GLOB REDLINE_GOMP "${REDLINE_SITE}/torch/lib/libgomp*.so*")
list(GET REDLINE_GOMP 0 REDLINE_GOMP)
target_link_libraries(redline_torch INTERFACE "${REDLINE_GOMP}")

# Arrow has no CMake package in the wheel; the sonames carry its version.
add_library(redline_arrow INTERFACE)
file(GLOB REDLINE_LIBARROW "${REDLINE_SITE}/pyarrow/libarrow.so.*")
file(GLOB REDLINE_LIBPARQUET "${REDLINE_SITE}/pyarrow/libparquet.so.*")
target_include_directories(redline_arrow SYSTEM INTERFACE "${REDLINE_SITE}/pyarrow/include")
target_link_libraries(redline_arrow INTERFACE "${REDLINE_LIBARROW}" "${REDLINE_LIBPARQUET}")

# fmt's headers come with LibTorch; its few compiled parts are ours to compile, once.
add_library(redline_fmt STATIC "${CMAKE_SOURCE_DIR}/cmake/fmt/format.cpp")
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/fmt_include")
file(CREATE_LINK "${REDLINE_SITE}/torch/include/fmt" "${CMAKE_BINARY_DIR}/fmt_include/fmt" SYMBOLIC)
target_include_directories(redline_fmt SYSTEM PUBLIC "${CMAKE_BINARY_DIR}/fmt_include")

find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)
find_package(PNG REQUIRED)
find_path(RAPIDJSON_INCLUDE rapidjson/reader.h REQUIRED)  # headers only
add_library(redline_rapidjson INTERFACE)
target_include_directories(redline_rapidjson SYSTEM INTERFACE ${RAPIDJSON_INCLUDE})
find_path(GLOO_INCLUDE gloo/transport/device.h REQUIRED)  # headers only: the library is inside LibTorch
find_path(XXHASH_INCLUDE xxhash.h REQUIRED)  # headers only: the hash is compiled in (XXH_INLINE_ALL)
# libarrow exports an OpenSSL of its own, and the first of two libraries that define a name serves both. So ours is linked in
# and kept out of the program's exported symbols (tests/python/test_symbols.py).
find_library(CRYPTO_ARCHIVE libcrypto.a REQUIRED)
find_path(CRYPTO_INCLUDE openssl/sha.h REQUIRED)
add_library(redline_sha256 INTERFACE)
target_include_directories(redline_sha256 SYSTEM INTERFACE ${CRYPTO_INCLUDE} ${XXHASH_INCLUDE})
# Among the options and not the libraries: it must come before libarrow, or the linker takes libarrow's functions and leaves ours out.
target_link_options(redline_sha256 INTERFACE -Wl,-u,SHA256_Init,-u,SHA256_Update,-u,SHA256_Final "${CRYPTO_ARCHIVE}"
  -Wl,--exclude-libs,libcrypto.a)
find_path(FLAC_INCLUDE FLAC/stream_decoder.h REQUIRED)
find_library(FLAC_LIBRARY FLAC REQUIRED)
add_library(redline_flac INTERFACE)
target_include_directories(redline_flac SYSTEM INTERFACE ${FLAC_INCLUDE})
target_link_libraries(redline_flac INTERFACE ${FLAC_LIBRARY})
find_path(SNDFILE_INCLUDE sndfile.h REQUIRED)
find_library(SNDFILE_LIBRARY sndfile REQUIRED)
add_library(redline_sndfile INTERFACE)
target_include_directories(redline_sndfile SYSTEM INTERFACE ${SNDFILE_INCLUDE})
target_link_libraries(redline_sndfile INTERFACE ${SNDFILE_LIBRARY})
find_path(TURBOJPEG_INCLUDE turbojpeg.h REQUIRED)
find_library(TURBOJPEG_LIBRARY turbojpeg REQUIRED)
add_library(redline_turbojpeg INTERFACE)
target_include_directories(redline_turbojpeg SYSTEM INTERFACE ${TURBOJPEG_INCLUDE})
target_link_libraries(redline_turbojpeg INTERFACE ${TURBOJPEG_LIBRARY})

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(REDLINE_CCACHE ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    CCACHE_DEPEND=1 CCACHE_PCH_EXTSUM=1 CCACHE_BASEDIR=/ CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${REDLINE_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${REDLINE_CCACHE})
endif()
