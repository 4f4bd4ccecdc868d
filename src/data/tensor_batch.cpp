#include "data/tensor_batch.h"

#include <ATen/Parallel.h>
#include <omp.h>

#include "core/check.h"
#include "core/error.h"

namespace redline::data {

torch::ScalarType scalar_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::F32:
      return torch::kFloat32;
    case Dtype::F64:
      return torch::kFloat64;
    case Dtype::I32:
      return torch::kInt32;
    case Dtype::I64:
      return torch::kInt64;
    case Dtype::U8:
      return torch::kUInt8;
    case Dtype::Bool:
      return torch::kBool;
  }
  return torch::kFloat32;
}

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
  Dtype dtype = Dtype::F32;
  switch (plain.scalar_type()) {
    case torch::kFloat32:
      dtype = Dtype::F32;
      break;
    case torch::kFloat64:
      dtype = Dtype::F64;
      break;
    case torch::kInt32:
      dtype = Dtype::I32;
      break;
    case torch::kInt64:
      dtype = Dtype::I64;
      break;
    case torch::kUInt8:
      dtype = Dtype::U8;
      break;
    case torch::kBool:
      dtype = Dtype::Bool;
      break;
    default:
      REDLINE_CHECK(false, "a tensor of this type has no array form");
  }
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
