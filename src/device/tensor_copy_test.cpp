#include "device/tensor_copy.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "device/machine.h"

namespace redline::device {
namespace {

TEST(TensorCopy, TheCpuHandsTensorsThrough) {
  CopyStream stream("cpu");
  EXPECT_FALSE(stream.copies());
  const at::Tensor host = at::ones({3});
  const at::Tensor there = stream.start(host);
  stream.wait();
  EXPECT_EQ(there.const_data_ptr(), host.const_data_ptr());
}

TEST(TensorCopy, NamesADeviceThatIsMissing) {
  for (const char* device : {"cuda:99", "no_such_device", "cuda:-3", ""}) {
    EXPECT_THROW(CopyStream stream(device), DeviceError) << device;
  }
}

// Runs only its comparison on a machine without a GPU; on one with, a real copy.
TEST(TensorCopy, CopiesToAGpuWhereThereIsOne) {
  if (!read_machine_facts().has_cuda) {
    EXPECT_THROW(CopyStream stream("cuda"), DeviceError);
  } else {
    CopyStream stream("cuda");
    const at::Tensor there = stream.start(at::arange(10).pin_memory());
    stream.wait();
    EXPECT_TRUE(at::equal(there.cpu(), at::arange(10)));
  }
}

}  // namespace
}  // namespace redline::device
