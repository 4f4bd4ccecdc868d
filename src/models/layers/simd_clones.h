// REDLINE_SIMD_CLONES before a function compiles it twice, for the build's baseline (AVX2 and FMA on x86-64-v3) and for
// AVX-512, and the loader picks one at start. The loops stay plain C++: the compiler vectorises them, so there is no
// second source to keep equal.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define REDLINE_SIMD_CLONES __attribute__((target_clones("avx512f", "default")))
#else
#define REDLINE_SIMD_CLONES
#endif
