// 10,000 audio samples of which 100 are corrupt in ten ways: exactly those are reported, and everything else is the
// same for every number of workers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "data/build_loader.h"
#include "data/kinds.h"
#include "data/testing/audio_files.h"
#include "data/testing/engine.h"

namespace redline::data {
namespace {

namespace ta = testing_audio;

constexpr int kKinds = 10;

std::string flac_clip(int number) { return encode_flac(ta::tone(number, 0.1), 16000); }

void put_u16(std::string& bytes, size_t at, uint16_t value) { std::memcpy(bytes.data() + at, &value, 2); }
void put_u32(std::string& bytes, size_t at, uint32_t value) { std::memcpy(bytes.data() + at, &value, 4); }

// Writes the corrupt file (or leaves it out) and returns its name.
std::string write_corrupt(const ta::TempFolder& folder, int kind, int number) {
  const std::string name =
      "bad/" + std::to_string(kind) + "_" + std::to_string(number) + (kind == 1 || kind == 2 ? ".flac" : ".wav");
  std::string bytes;
  switch (kind) {
    case 0:
      break;  // 0 bytes
    case 1:
      bytes = flac_clip(number).substr(0, 200);
      break;  // truncated
    case 2:   // flipped bits
      bytes = flac_clip(number);
      for (size_t at = bytes.size() / 2; at < bytes.size() / 2 + 8; ++at) bytes[at] = static_cast<char>(~bytes[at]);
      break;
    case 3:  // wrong magic
      bytes = encode_wav(ta::tone(number, 0.1), 16000);
      bytes.replace(0, 4, "JUNK");
      break;
    case 4:  // absurd dimensions
      bytes = encode_wav(ta::tone(number, 0.1), 16000);
      put_u16(bytes, 22, 65535);
      break;
    case 5: {  // NaN
      std::vector<float> samples = ta::tone(number, 0.1);
      samples[700] = std::numeric_limits<float>::quiet_NaN();
      bytes = encode_wav(samples, 16000, 1, {WavEncoding::Float32, false});
      put_u32(bytes, bytes.size() - 400, 0x7fc00000);  // should the writer clip NaN away
      break;
    }
    case 6:
      return name;  // missing
    case 7:         // no permission; root may read anything, so a link that leads nowhere stands in
      if (::geteuid() == 0) {
        ta::fs::create_directories((folder / name).parent_path());
        ta::fs::create_symlink(ta::fs::path(name).filename(), folder / name);
        return name;
      }
      bytes = encode_wav(ta::tone(number, 0.1), 16000);
      break;
    case 8:  // wrong rate
      bytes = encode_wav(ta::tone(number, 0.1), 16000);
      put_u32(bytes, 24, 0);
      break;
    default:
      bytes = "ID3\x04" + std::string(2000, '\x55');
      break;  // a format that is not read
  }
  folder.write(name, bytes);
  if (kind == 7) ta::fs::permissions(folder / name, ta::fs::perms::none);
  return name;
}

struct Outcome {
  uint64_t contents = 1;
  int64_t rows = 0, substitutes = 0;
  std::vector<nlohmann::json> reported;
  bool operator==(const Outcome&) const = default;
};

Outcome run_epoch(const DatasetConfig& config, const ta::fs::path& run) {
  TaskNeeds needs;
  needs.kind = audio_kind();
  needs.run_directory = run;
  ta::fs::remove(run / "bad_samples.jsonl");
  auto loader = build_loader(config, needs);
  Outcome outcome;
  while (auto batch = loader->next()) {
    outcome.contents = testing_engine::batch_hash(*batch, outcome.contents);
    outcome.rows += static_cast<int64_t>(batch->sample_ids.size());
    outcome.substitutes += batch->num_bad;
  }
  std::ifstream lines(run / "bad_samples.jsonl");
  for (std::string line; std::getline(lines, line);) outcome.reported.push_back(nlohmann::json::parse(line));
  return outcome;
}

TEST(CorruptSamples, ExactlyThoseAreReportedForEveryWorkerCount) {
  ta::TempFolder folder("corrupt_samples");
  for (int i = 0; i < 50; ++i) folder.write("good/" + std::to_string(i) + ".flac", flac_clip(i));
  std::string manifest;
  std::map<int64_t, std::string> corrupt;
  for (int64_t i = 0; i < 10'000; ++i) {
    if (i % 100 == 37) {
      const int number = static_cast<int>(i / 100);
      corrupt[i] = write_corrupt(folder, number % kKinds, number);
      manifest += ta::manifest_line(corrupt[i], 0.1);
    } else {
      manifest += ta::manifest_line("good/" + std::to_string(i % 50) + ".flac", 0.1);
    }
  }
  ASSERT_EQ(corrupt.size(), 100u);
  folder.write("m.json", manifest);

  DatasetConfig config;
  config.manifest_filepath = config::Node::scalar((folder / "m.json").string());
  config.shuffle = true;
  config.batch_size = 8;
  config.min_audio_len_secs = 0.0;
  config.min_gain_db = -3.0, config.max_gain_db = 3.0;
  MachineFacts machine;
  machine.allowed_cpus = 64;
  std::vector<Outcome> outcomes;
  for (int workers : {0, 1, 2, 4, 8}) {
    config.num_workers = workers;
    DatasetConfig resolved = config;
    resolved.resolve(machine, 1);
    outcomes.push_back(run_epoch(resolved, folder.path()));
    EXPECT_EQ(outcomes.back(), outcomes[0]) << workers << " workers";
  }
  EXPECT_EQ(outcomes[0].rows, 10'000);
  EXPECT_EQ(outcomes[0].substitutes, 100);
  std::map<int64_t, std::string> reported;
  std::map<std::string, int> reasons;
  for (const auto& line : outcomes[0].reported) {
    reported[line["sample"].get<int64_t>()] = line["name"].get<std::string>();
    ++reasons[line["reason"].get<std::string>().substr(0, 30)];
    EXPECT_GT(line["reason"].get<std::string>().size(), 8u);
  }
  EXPECT_EQ(reported, corrupt);
  EXPECT_EQ(outcomes[0].reported.size(), 100u);
  EXPECT_GE(reasons.size(), 7u) << "different damage has different words";
}

}  // namespace
}  // namespace redline::data
