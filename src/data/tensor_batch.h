// The hand-over to LibTorch: a batch's arrays become tensors that share their memory, with a deleter that holds it.
// Also the two things only LibTorch can do for the engine: pinned memory, and one thread per worker.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/sample.h"
#include "data/workers/batch_reader.h"

namespace redline::data {

// No copy: the tensor keeps the array's memory alive and may write into it.
torch::Tensor to_tensor(const Array& array);
std::vector<std::pair<std::string, torch::Tensor>> to_tensors(const Batch& batch);
// The other way, for tests and for tasks that use tensors in a SampleTransform: shares memory with a contiguous CPU
// tensor, copies else.
Array to_array(const torch::Tensor& tensor);

torch::ScalarType scalar_type(Dtype dtype);

// Batch memory from LibTorch's pinned allocator. Throws DeviceError where there is none.
std::shared_ptr<ArrayAllocator> pinned_arrays();

// Makes LibTorch's operators use one thread in the calling thread, and leaves every other thread as it is.
void use_one_intraop_thread();

}  // namespace redline::data
