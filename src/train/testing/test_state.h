// Test support: small states whose content tells their step, and a scratch directory that cleans up after itself.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "train/checkpoint/store.h"

namespace redline::train::test {

class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string name = "redline_checkpoint_";
    name += std::to_string(::getpid());
    if (const auto* info = ::testing::UnitTest::GetInstance()->current_test_info())
      name.append("_").append(info->name());
    path_ = memory_or_temporary() / name;
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~ScratchDirectory() { std::filesystem::remove_all(path_); }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  // These tests are about order and content, not about the disk: memory spares them thousands of real fsyncs.
  static std::filesystem::path memory_or_temporary() {
    const std::filesystem::path memory = "/dev/shm";
    std::error_code code;
    const auto space = std::filesystem::space(memory, code);
    const bool usable = !code && space.available > (uint64_t{256} << 20) && ::access(memory.c_str(), W_OK) == 0;
    return usable ? memory : std::filesystem::temp_directory_path();
  }
  std::filesystem::path path_;
};

// `floats` decides the size of the model; every tensor depends on the step.
inline CheckpointState state_at(int64_t step, int64_t floats = 1000) {
  const auto value = static_cast<float>(step);
  CheckpointState state;
  state.model = {{"encoder.weight", torch::arange(floats, torch::kFloat32) * value},
                 {"encoder.bias", torch::full({7}, value)}};
  state.optimizer = {{"exp_avg.0", torch::full({33}, value * 2)}, {"step", torch::tensor(step)}};
  state.state_json = "{\"step\": " + std::to_string(step) + "}";
  return state;
}

inline bool equal_states(const CheckpointState& a, const CheckpointState& b) {
  auto equal = [](const NamedTensors& x, const NamedTensors& y) {
    if (x.size() != y.size()) return false;
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i].first != y[i].first || !x[i].second.equal(y[i].second)) return false;
    }
    return true;
  };
  return a.state_json == b.state_json && equal(a.model, b.model) && equal(a.optimizer, b.optimizer);
}

inline CheckpointConfig keep_two() {
  CheckpointConfig config;
  config.save_top_k = 0;
  config.keep_last = 2;
  return config;
}

}  // namespace redline::train::test
