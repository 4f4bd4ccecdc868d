#include "data/tensor_batch.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <thread>

#include "core/error.h"
#include "core/time.h"
#include "data/testing/engine.h"

namespace redline::data {
namespace {

TEST(TensorBatch, SharesMemoryAndKeepsItAlive) {
  torch::Tensor tensor;
  const void* memory = nullptr;
  {
    Array array = Array::empty(Dtype::I64, {2, 3});
    for (size_t i = 0; i < 6; ++i) array.as<int64_t>()[i] = static_cast<int64_t>(i);
    memory = array.data();
    tensor = to_tensor(array);
  }
  EXPECT_EQ(tensor.data_ptr(), memory);
  EXPECT_TRUE(torch::equal(tensor, torch::arange(6, torch::kInt64).view({2, 3})));
  EXPECT_TRUE(tensor.is_contiguous());
  EXPECT_FALSE(tensor.requires_grad());
  EXPECT_EQ((tensor + 1).sum().item<int64_t>(), 21);
  EXPECT_EQ(tensor.view({3, 2}).sizes(), torch::IntArrayRef({3, 2}));
}

TEST(TensorBatch, KnowsEveryTypeAndShape) {
  for (const auto& [ours, theirs] : {std::pair(Dtype::F32, torch::kFloat32), std::pair(Dtype::F64, torch::kFloat64),
                                     std::pair(Dtype::I32, torch::kInt32), std::pair(Dtype::I64, torch::kInt64),
                                     std::pair(Dtype::U8, torch::kUInt8), std::pair(Dtype::Bool, torch::kBool)}) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{5}, Shape{2, 0}, Shape{2, 3, 4}}) {
      const torch::Tensor tensor = to_tensor(Array::zeros(ours, shape));
      EXPECT_EQ(tensor.scalar_type(), theirs);
      EXPECT_EQ(tensor.sizes(), torch::IntArrayRef(shape));
      EXPECT_TRUE(torch::equal(tensor, torch::zeros(shape, theirs)));
      const Array back = to_array(tensor);
      EXPECT_EQ(back.dtype(), ours);
      EXPECT_EQ(back.shape(), shape);
    }
  }
}

TEST(TensorBatch, ChannelsLastIsAMatterOfStrides) {
  for (const Shape& shape : {Shape{2, 3, 4, 5}, Shape{2, 6, 3, 4, 5}}) {
    Array array = Array::zeros(Dtype::F32, shape);
    for (size_t i = 0; i < array.as<float>().size(); ++i) array.as<float>()[i] = static_cast<float>(i);
    array.set_channels_last();
    const torch::Tensor tensor = to_tensor(array);
    EXPECT_EQ(tensor.sizes(), torch::IntArrayRef(shape));
    EXPECT_EQ(tensor.data_ptr(), array.data());
    const torch::Tensor pictures = tensor.view({-1, 3, 4, 5});
    EXPECT_TRUE(pictures.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_EQ(pictures[1][2][1][3].item<float>(), 60.0f + static_cast<float>((1 * 5 + 3) * 3 + 2));
  }
}

TEST(TensorBatch, FieldsKeepTheirNamesAndOrder) {
  Batch batch;
  batch.fields.emplace_back("b", Array::zeros(Dtype::F32, {2}));
  batch.fields.emplace_back("a", Array::zeros(Dtype::I64, {2}));
  const auto tensors = to_tensors(batch);
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].first, "b");
  EXPECT_EQ(tensors[1].second.scalar_type(), torch::kInt64);
}

TEST(TensorBatch, PinningIsRefusedWhereThereIsNoDevice) {
  if (torch::cuda::is_available()) {
    EXPECT_NO_THROW(pinned_arrays());
  } else {
    EXPECT_THROW(pinned_arrays(), DeviceError);
  }
}

// A worker's operators use one thread; the consumer's keep theirs.
TEST(TensorBatch, WorkersUseOneThread) {
  const int before = at::get_num_threads();
  int inside = 0, inside_after_use = 0;
  std::thread worker([&] {
    use_one_intraop_thread();
    inside = at::get_num_threads();
    torch::rand({256, 256}).mm(torch::rand({256, 256}));
    inside_after_use = at::get_num_threads();
  });
  worker.join();
  EXPECT_EQ(inside, 1);
  EXPECT_EQ(inside_after_use, 1);
  EXPECT_EQ(at::get_num_threads(), before);
  int fresh = 0;
  std::thread other([&] { fresh = at::get_num_threads(); });
  other.join();
  EXPECT_EQ(fresh, before) << "a new thread is not changed either";
}

}  // namespace
}  // namespace redline::data
