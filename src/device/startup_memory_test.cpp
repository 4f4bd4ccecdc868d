#include "device/startup_memory.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "device/process_memory.h"

namespace redline::device {
namespace {

TEST(StartupMemory, IsGivenBackAndEverythingStillRuns) {
  const torch::Tensor a = torch::arange(12, torch::kFloat32).view({3, 4});
  const torch::Tensor before = torch::matmul(a, a.t());
  const int64_t held = process_rss_bytes();
  release_startup_memory();
  EXPECT_LT(process_rss_bytes(), held - (int64_t{8} << 20)) << "LibTorch's relocation tables alone are larger";
  EXPECT_TRUE(torch::equal(torch::matmul(a, a.t()), before));
  EXPECT_THROW(torch::matmul(a, a), c10::Error) << "unwinding reads tables that were given back";
  release_startup_memory();  // nothing left to give is no harm
  EXPECT_TRUE(torch::equal(torch::matmul(a, a.t()), before));
}

}  // namespace
}  // namespace redline::device
