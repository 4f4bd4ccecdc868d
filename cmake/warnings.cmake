# Flags of our own code. Kernels that need more than AVX2 carry target attributes and are chosen at run time.
include(CheckCXXSourceRuns)
set(CMAKE_REQUIRED_FLAGS "-march=x86-64-v3")
check_cxx_source_runs("#include <immintrin.h>
int main() { volatile __m256i x = _mm256_set1_epi32(1); (void)x; return __builtin_cpu_supports(\"avx2\") ? 0 : 1; }" REDLINE_HAS_V3)
unset(CMAKE_REQUIRED_FLAGS)

add_library(redline_flags INTERFACE)
target_compile_options(redline_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Woverloaded-virtual -Werror
  -fstack-protector-strong
  # g++ 12 sees overlaps in std::string's own operator+ that are not there (GCC bug 105651).
  -Wno-restrict -Wno-stringop-overflow)
if(REDLINE_HAS_V3)
  target_compile_options(redline_flags INTERFACE -march=x86-64-v3)
endif()
target_compile_definitions(redline_flags INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
target_include_directories(redline_flags INTERFACE "${CMAKE_SOURCE_DIR}/src")
target_link_options(redline_flags INTERFACE -Wl,-z,relro,-z,now)
