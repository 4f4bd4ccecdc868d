// Round trips of every type, checked reads, and the writer's behaviour on awkward tensors.
#include "train/files/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "core/hash.h"
#include "core/testing/memory_file_ops.h"
#include "train/checkpoint/block_reader.h"

namespace redline::train {
namespace {

using ::testing::HasSubstr;

class SafetensorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        std::filesystem::temp_directory_path() / ("redline_safetensors_" + std::to_string(::getpid()) +
                                                  ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::filesystem::path directory_;
};

std::string bytes_of(const torch::Tensor& tensor) {
  const torch::Tensor plain = tensor.contiguous();
  return {static_cast<const char*>(plain.data_ptr()), plain.nbytes()};
}

std::vector<uint32_t> sums_of(const std::filesystem::path& path) {
  const std::string bytes = read_file(path);
  std::vector<uint32_t> sums;
  for (size_t at = 0; at < bytes.size(); at += kBlockBytes) {
    sums.push_back(
        crc32c(std::as_bytes(std::span(bytes).subspan(at, std::min<size_t>(kBlockBytes, bytes.size() - at)))));
  }
  return sums;
}

TEST_F(SafetensorsTest, EveryTypeComesBackEqual) {
  NamedTensors tensors;
  for (int type = 0; type < 17; ++type) {
    const torch::ScalarType scalar = scalar_type(static_cast<StoredType>(type));
    EXPECT_EQ(stored_type(scalar), static_cast<StoredType>(type));
    EXPECT_EQ(c10::elementSize(scalar), stored_type_bytes(static_cast<StoredType>(type)));
    torch::Tensor bytes = torch::randint(0, 256, {5, 3, 8}, torch::kUInt8);
    if (scalar == torch::kBool) bytes = bytes.remainder(2);
    tensors.emplace_back(std::string("t.") + c10::toString(scalar), bytes.view(scalar));
  }
  tensors.emplace_back("scalar", torch::tensor(2.5));
  tensors.emplace_back("empty", torch::empty({3, 0}));
  tensors.emplace_back("transposed", torch::arange(6).reshape({2, 3}).t());
  tensors.emplace_back("channels_last", torch::randn({2, 3, 4, 5}).contiguous(torch::MemoryFormat::ChannelsLast));
  tensors.emplace_back("slice", torch::randn({10})[3]);
  tensors.emplace_back("leaf", torch::randn({2}, torch::requires_grad()));
  tensors.emplace_back("naïve/\"name\"", torch::ones({1}));

  const auto path = directory_ / "all.safetensors";
  write_safetensors_atomic(path, tensors, {{"format", "pt"}});
  std::map<std::string, std::string> metadata;
  const NamedTensors back = read_named_tensors(path, {}, &metadata);
  ASSERT_EQ(back.size(), tensors.size());
  EXPECT_EQ(metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  for (size_t i = 0; i < back.size(); ++i) {
    EXPECT_EQ(back[i].first, tensors[i].first);  // the order given
    EXPECT_EQ(back[i].second.scalar_type(), tensors[i].second.scalar_type());
    EXPECT_EQ(back[i].second.sizes(), tensors[i].second.sizes());
    EXPECT_EQ(bytes_of(back[i].second), bytes_of(tensors[i].second.detach())) << tensors[i].first;
  }
  EXPECT_EQ(read_safetensors(path).tensors.size(), tensors.size());
  EXPECT_EQ(bytes_of(read_named_tensors(path, sums_of(path))[3].second), bytes_of(tensors[3].second));
}

TEST_F(SafetensorsTest, ThreadsFillTensorsThatCrossBlocks) {
  NamedTensors tensors;
  for (int i = 0; i < 40; ++i) tensors.emplace_back("t." + std::to_string(i), torch::randn({(i * 7919) % 400'000 + 1}));
  const auto path = directory_ / "big.safetensors";
  write_safetensors_atomic(path, tensors);
  const std::vector<uint32_t> sums = sums_of(path);
  ASSERT_GT(sums.size(), 16u);
  for (const auto& part : {std::span<const uint32_t>(), std::span<const uint32_t>(sums)}) {
    const NamedTensors back = read_named_tensors(path, part);
    for (size_t i = 0; i < back.size(); ++i) EXPECT_TRUE(back[i].second.equal(tensors[i].second)) << i;
  }
}

TEST_F(SafetensorsTest, DamageIsNamedByFileAndBlock) {
  const auto path = directory_ / "model.safetensors";
  write_safetensors_atomic(path, {{"w", torch::randn({1'500'000})}});
  const std::vector<uint32_t> sums = sums_of(path);
  for (const uint64_t at : {uint64_t{3}, uint64_t{40}, 2 * kBlockBytes - 1, 5 * kBlockBytes}) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char before = static_cast<char>(file.get());
    auto put = [&](char c) { file.seekp(static_cast<std::streamoff>(at)), file.put(c), file.flush(); };
    put(static_cast<char>(before ^ 4));
    try {
      read_named_tensors(path, sums);
      FAIL() << "byte " << at;
    } catch (const DamagedError& error) {
      EXPECT_EQ(error.damage().block, at / kBlockBytes);
      EXPECT_THAT(error.what(),
                  HasSubstr(std::string("model.safetensors, block ").append(std::to_string(at / kBlockBytes))));
    }
    put(before);
  }
  EXPECT_NO_THROW(read_named_tensors(path, sums));
  std::filesystem::resize_file(path, 5'000'000);
  EXPECT_THROW(read_named_tensors(path, sums), DamagedError);
  EXPECT_THROW(read_named_tensors(path), CheckpointError);
}

TEST_F(SafetensorsTest, RefusesWhatIsNoFile) {
  EXPECT_THROW(read_safetensors(directory_ / "missing.safetensors"), DiskError);
  EXPECT_THROW(read_safetensors(directory_), CheckpointError);
  std::ofstream(directory_ / "short") << "abc";
  EXPECT_THROW(read_safetensors(directory_ / "short"), CheckpointError);
  ASSERT_EQ(::mkfifo((directory_ / "fifo").c_str(), 0600), 0);
  EXPECT_THROW(read_safetensors(directory_ / "fifo"), CheckpointError);
}

TEST_F(SafetensorsTest, TypesWithoutANameAreRefused) {
  EXPECT_THROW(layout_safetensors({{"c", torch::zeros({1}, torch::kComplexDouble)}}), ConfigError);
  EXPECT_THROW(layout_safetensors({{"a", torch::zeros({1})}, {"a", torch::zeros({1})}}), InternalError);
}

TEST_F(SafetensorsTest, AtomicWriteLeavesOldOrNewAtEveryCrash) {
  int states = 0;
  auto write = [](MemoryFileOps& disk, double value) {
    write_safetensors_atomic("d/w.safetensors", {{"w", torch::full({64}, value)}}, {}, disk);
  };
  MemoryFileOps sample;
  write(sample, 1), write(sample, 2);
  MemoryFileOps old;
  write(old, 1);
  const std::string first = *old.content("d/w.safetensors"), second = *sample.content("d/w.safetensors");
  MemoryFileOps::for_every_crash(
      [&](MemoryFileOps& disk) { write(disk, 1); }, [&](MemoryFileOps& disk) { write(disk, 2); },
      [&](const MemoryFileOps::Files& files) {
        ++states;
        ASSERT_TRUE(files.contains("d/w.safetensors"));
        EXPECT_TRUE(files.at("d/w.safetensors") == first || files.at("d/w.safetensors") == second);
      });
  EXPECT_GT(states, 20);
}

}  // namespace
}  // namespace redline::train
