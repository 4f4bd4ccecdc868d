// mkl_set_dynamic is found by name: LibTorch carries MKL inside but installs no header for it, and other builds have no
// MKL at all.
#include "device/threads.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/version.h>

#include "core/error.h"
#include "core/strings.h"

namespace redline::device {

bool fix_mkl_threads() {
  // The capitalised name is MKL's C symbol and takes the value; the lower-case one is Fortran's and takes a pointer.
  using SetDynamic = void (*)(int);
  static const auto set_dynamic = reinterpret_cast<SetDynamic>(dlsym(RTLD_DEFAULT, "MKL_Set_Dynamic"));
  if (set_dynamic == nullptr) return false;
  set_dynamic(0);
  return true;
}

void set_intra_op_threads(int threads) {
  if (threads < 1) {
    throw ConfigError("The number of intra-op threads must be at least 1, not " + std::to_string(threads) +
                      "; set trainer.intra_op_threads to a positive number or to auto.");
  }
  at::set_num_threads(threads);
  fix_mkl_threads();
}

int intra_op_threads() { return at::get_num_threads(); }

void set_deterministic(bool on) {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(on, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(
      false);  // only hides reads of uninitialised memory, and costs a fill per tensor
  context.setDeterministicCuDNN(on);
  context.setDeterministicMkldnn(on);
  context.setBenchmarkCuDNN(!on);
}

bool deterministic() { return at::globalContext().deterministicAlgorithms(); }

std::string instruction_set() { return at::get_cpu_capability(); }

std::string numerics_fingerprint() {
  return fmt::format("threads={} instruction_set={} deterministic={} libtorch={}.{}.{}", intra_op_threads(),
                     instruction_set(), deterministic() ? 1 : 0, TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR,
                     TORCH_VERSION_PATCH);
}

ThreadCountScope::ThreadCountScope(int threads) : before_(intra_op_threads()) { set_intra_op_threads(threads); }
ThreadCountScope::~ThreadCountScope() { at::set_num_threads(before_); }

}  // namespace redline::device
