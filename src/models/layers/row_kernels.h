// What the fused row kernels share: which tensors they take, how rows are divided among threads, and column sums that
// are added in thread order, so the same thread count gives the same bits.
#pragma once

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace redline::models {

// CPU memory we may touch: not a traced or fake tensor.
inline bool on_plain_cpu(const torch::Tensor& x) {
  return x.device().is_cpu() && !x.unsafeGetTensorImpl()->is_python_dispatch();
}
inline bool row_kernels_fit(const torch::Tensor& x) {
  return on_plain_cpu(x) && (x.scalar_type() == torch::kFloat32 || x.scalar_type() == torch::kFloat64);
}

// body(first row, last row, slot): slot is below at::get_num_threads().
template <class Body>
void for_each_row_block(int64_t rows, int64_t width, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, width));
  at::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) { body(begin, end, at::get_thread_num()); });
}

// Partial sums over rows, one line of `lines * width` per thread.
template <class T>
class ColumnSums {
 public:
  ColumnSums(int64_t lines, int64_t width)
      : lines_(lines),
        width_(width),
        slots_(at::get_num_threads()),
        values_(static_cast<size_t>(lines * width * slots_), T(0)) {}
  T* line(int64_t slot, int64_t index) { return values_.data() + (slot * lines_ + index) * width_; }
  torch::Tensor total(int64_t index, const torch::TensorOptions& options) {
    torch::Tensor out = torch::empty({width_}, options);
    T* to = out.mutable_data_ptr<T>();
    std::copy_n(line(0, index), width_, to);
    for (int64_t slot = 1; slot < slots_; ++slot) {
      const T* from = line(slot, index);
      for (int64_t c = 0; c < width_; ++c) to[c] += from[c];
    }
    return out;
  }

 private:
  int64_t lines_, width_, slots_;
  std::vector<T> values_;
};

}  // namespace redline::models
