// REDLINE_SIMD_CLONES before a function compiles it twice, for the build's baseline (AVX2 and FMA on x86-64-v3) and for
// AVX-512, and the loader picks one at start. The loops stay plain C++: the compiler vectorises them, so there is no
// second source to keep equal. Nothing here reads the floating-point exception flags; without saying so, a choice like
// `x > 88 ? 88 : x` stays a branch and its loop scalar. REDLINE_VECTOR_MATH says the same of an inline function,
// without which it could not be inlined into such a loop.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define REDLINE_SIMD_CLONES __attribute__((target_clones("avx512f", "default"), optimize("no-trapping-math")))
#define REDLINE_VECTOR_MATH __attribute__((optimize("no-trapping-math"))) inline
#else
#define REDLINE_SIMD_CLONES
#define REDLINE_VECTOR_MATH inline
#endif
