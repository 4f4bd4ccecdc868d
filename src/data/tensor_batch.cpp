#include "data/tensor_batch.h"

#include <ATen/Parallel.h>
#include <omp.h>

#include <algorithm>

#include "core/check.h"
#include "core/error.h"

namespace redline::data {

namespace {
// In the order of Dtype.
constexpr torch::ScalarType kScalarTypes[] = {torch::kFloat32, torch::kFloat64, torch::kInt32,
                                              torch::kInt64,   torch::kUInt8,   torch::kBool};
}  // namespace

torch::ScalarType scalar_type(Dtype dtype) { return kScalarTypes[static_cast<size_t>(dtype)]; }

torch::Tensor to_tensor(const Array& array) {
  // Built from a storage directly: torch::from_blob does the same through a dispatcher call and twice the time.
  c10::DataPtr pointer(
      array.data(), new std::shared_ptr<void>(array.memory()),
      [](void* held) { delete static_cast<std::shared_ptr<void>*>(held); }, c10::kCPU);
  c10::Storage storage(c10::Storage::use_byte_size_t(), array.num_bytes(), std::move(pointer), nullptr, false);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                         c10::scalarTypeToTypeMeta(scalar_type(array.dtype())));
  if (array.shape().size() != 1 || array.shape()[0] != 0)
    tensor.unsafeGetTensorImpl()->set_sizes_contiguous(array.shape());
  if (array.channels_last()) {
    const size_t rank = array.shape().size();
    const int64_t channels = array.shape()[rank - 3], width = array.shape()[rank - 1];
    Shape strides = tensor.strides().vec();
    strides[rank - 3] = 1, strides[rank - 2] = width * channels, strides[rank - 1] = channels;
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(array.shape(), strides);
  }
  return tensor;
}

std::vector<std::pair<std::string, torch::Tensor>> to_tensors(const Batch& batch) {
  std::vector<std::pair<std::string, torch::Tensor>> tensors;
  tensors.reserve(batch.fields.size());
  for (const auto& [name, array] : batch.fields) tensors.emplace_back(name, to_tensor(array));
  return tensors;
}

Array to_array(const torch::Tensor& tensor) {
  const torch::Tensor plain = tensor.detach().to(torch::kCPU).contiguous();
  const auto* type = std::find(std::begin(kScalarTypes), std::end(kScalarTypes), plain.scalar_type());
  REDLINE_CHECK(type != std::end(kScalarTypes), "a tensor of this type has no array form");
  const auto dtype = static_cast<Dtype>(type - std::begin(kScalarTypes));
  const auto held = std::make_shared<torch::Tensor>(plain);
  return Array::wrap(dtype, plain.sizes().vec(), std::shared_ptr<void>(held, plain.data_ptr()));
}

namespace {

class PinnedArrays : public ArrayAllocator {
 public:
  Array allocate(Dtype dtype, Shape shape) override {
    return to_array(torch::empty(shape, torch::TensorOptions(scalar_type(dtype)).pinned_memory(true)));
  }
};

}  // namespace

std::shared_ptr<ArrayAllocator> pinned_arrays() {
  auto pinned = std::make_shared<PinnedArrays>();
  try {
    pinned->allocate(Dtype::U8, {64});
  } catch (const c10::Error&) {
    throw DeviceError("pin_memory: this machine has no device that copies from pinned memory; set pin_memory: false.");
  }
  return pinned;
}

void use_one_intraop_thread() {
  // LibTorch sets a thread's OpenMP count on its first parallel operator; let that happen now, then override it for
  // this thread only (at::set_num_threads would also change what other threads start with).
  at::internal::lazy_init_num_threads();
  omp_set_num_threads(1);
}

}  // namespace redline::data
