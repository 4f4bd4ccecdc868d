# One precompiled torch header for all rooms that use LibTorch, made once at configure time under .cache/pch and shared by every build
# directory of this checkout (the unity and the plain build, and so their ccache entries). CMake's own precompiled headers would make one
# of 700 MB per build directory.
string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
separate_arguments(type_flags UNIX_COMMAND "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}}")
# Without -fopenmp LibTorch's at::parallel_for is a plain loop: its header looks at _OPENMP where it is included.
set(pch_flags ${type_flags} -std=c++20 -fPIC -fopenmp -fstack-protector-strong -D_GLIBCXX_USE_CXX11_ABI=1)
if(REDLINE_HAS_V3)
  list(APPEND pch_flags -march=x86-64-v3)
endif()
set(pch_includes -isystem "${CMAKE_SOURCE_DIR}/cmake/narrow" -isystem "${REDLINE_SITE}/torch/include" -isystem "${REDLINE_SITE}/torch/include/torch/csrc/api/include")

file(READ "${CMAKE_SOURCE_DIR}/cmake/torch_pch.h" pch_text)
file(READ "${CMAKE_SOURCE_DIR}/cmake/narrow/torch/torch.h" pch_narrow_text)
file(READ "${REDLINE_SITE}/torch/version.py" torch_version_text)
string(MD5 pch_key "${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_VERSION} ${pch_flags} ${pch_includes} ${pch_text} ${pch_narrow_text} ${torch_version_text}")
set(REDLINE_PCH_DIR "${CMAKE_SOURCE_DIR}/.cache/pch/${pch_key}")
file(MAKE_DIRECTORY "${CMAKE_SOURCE_DIR}/.cache/pch")
file(LOCK "${CMAKE_SOURCE_DIR}/.cache/pch" DIRECTORY)
if(NOT EXISTS "${REDLINE_PCH_DIR}/torch_pch.h.gch.sum")
  message(STATUS "Precompiling the torch header (once)")
  file(MAKE_DIRECTORY "${REDLINE_PCH_DIR}")
  file(COPY "${CMAKE_SOURCE_DIR}/cmake/torch_pch.h" DESTINATION "${REDLINE_PCH_DIR}")
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} ${pch_flags} ${pch_includes} -x c++-header "${REDLINE_PCH_DIR}/torch_pch.h" -o "${REDLINE_PCH_DIR}/torch_pch.h.gch"
    RESULT_VARIABLE pch_result ERROR_VARIABLE pch_error)
  if(NOT pch_result EQUAL 0)
    message(FATAL_ERROR "The torch header does not compile:\n${pch_error}")
  endif()
  # ccache reads this instead of hashing 700 MB per file (CCACHE_PCH_EXTSUM).
  file(WRITE "${REDLINE_PCH_DIR}/torch_pch.h.gch.sum" "${pch_key}\n")
endif()
file(LOCK "${CMAKE_SOURCE_DIR}/.cache/pch" DIRECTORY RELEASE)

function(redline_use_torch_pch target)
  target_compile_options(${target} PRIVATE -fPIC -fopenmp "SHELL:-include ${REDLINE_PCH_DIR}/torch_pch.h")
endfunction()
