// Intra-op threads and what bit-equality needs: fixed threads, MKL not choosing its own, deterministic kernels, one
// instruction set. These are recorded in checkpoints and compared at resume (design: worker counts never change a bit
// of the result).
#pragma once

#include <string>

namespace redline::device {

// Sets LibTorch's intra-op threads and stops MKL from using fewer when it thinks best. Throws ConfigError below 1.
void set_intra_op_threads(int threads);
int intra_op_threads();

// True when MKL is linked and was told to keep the thread count (mkl_set_dynamic(0)).
bool fix_mkl_threads();

// Deterministic kernels, no benchmarking of algorithms; an operation without a deterministic kernel throws when it is
// called.
void set_deterministic(bool on);
bool deterministic();

// The kernels LibTorch chose: "DEFAULT", "AVX2", "AVX512", ... (ATEN_CPU_CAPABILITY lowers it).
std::string instruction_set();

// What two runs must share to be bit-equal, e.g. "threads=2 instruction_set=AVX2 deterministic=1 mkl=2024.2".
std::string numerics_fingerprint();

// Another thread count until the end of the scope.
class ThreadCountScope {
 public:
  explicit ThreadCountScope(int threads);
  ~ThreadCountScope();
  ThreadCountScope(const ThreadCountScope&) = delete;
  ThreadCountScope& operator=(const ThreadCountScope&) = delete;

 private:
  int before_;
};

}  // namespace redline::device
