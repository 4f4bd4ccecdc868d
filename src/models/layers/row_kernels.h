// What the fused row kernels share: which tensors they take, how rows are divided among threads, and column sums that
// are added in thread order, so the same thread count gives the same bits.
#pragma once

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>

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

// Sums over rows, `lines` of them side by side: each thread adds to its own, and total() adds those in thread order.
template <class T>
class ColumnSums {
 public:
  explicit ColumnSums(int64_t width, int64_t lines = 1)
      : lines_(lines),
        width_(width),
        partial_(torch::zeros({at::get_num_threads(), lines, width}, c10::CppTypeToScalarType<T>::value)),
        values_(partial_.mutable_data_ptr<T>()) {}
  T* line(int64_t slot, int64_t index) { return values_ + (slot * lines_ + index) * width_; }
  T* local(int64_t index = 0) { return line(at::get_thread_num(), index); }  // of the thread that asks
  torch::Tensor total(int64_t index = 0) {
    torch::Tensor out = torch::empty({width_}, partial_.options());
    T* to = out.mutable_data_ptr<T>();
    std::copy_n(line(0, index), width_, to);
    for (int64_t slot = 1; slot < partial_.size(0); ++slot) {
      const T* from = line(slot, index);
      for (int64_t c = 0; c < width_; ++c) to[c] += from[c];
    }
    return out;
  }
  torch::Tensor parts(int64_t index = 0) const { return partial_.select(1, index); }  // [threads, width]

 private:
  int64_t lines_, width_;
  torch::Tensor partial_;  // [threads, lines, width]
  T* values_;
};

}  // namespace redline::models
