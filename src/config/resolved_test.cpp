// The dump reads back equal, the hash is of names and values alone.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "config/testing/example_job.h"
#include "config/testing/test_files.h"

namespace redline::config {
namespace {

using testing::Folder;

const char* kJob =
    "name: \"weird: name # ${not} \\n line\"\n"
    "seed: 3\n"
    "trainer: {devices: auto, precision: 32, limit_val_batches: 0.25, strategy: ddp}\n"
    "model:\n"
    "  train_ds:\n    manifest_filepath: ???\n    batch_size: 4\n"
    "  validation_ds: {manifest_filepath: [a.json, 'b c.json', '007']}\n"
    "  spec_augment: {}\n"
    "  encoder: {att_contexts: [[1, 2], []]}\n"
    "  extra: {empty: {}, list: [1, '1', null, {k: yes}], '0': \"???\"}\n"
    "  optim: {lr: 1e-3, betas: [0.9, 0.98]}\n";

Resolved read_text(example::Job& job, const Folder& folder, const std::string& text) {
  RequestSource source;
  source.file = folder.write("x.yaml", text);
  return job.read(source);
}

TEST(ResolvedTest, DumpReadsBackEqual) {
  const Folder folder;
  example::Job job;
  const std::string escaped = std::string(kJob).replace(std::string(kJob).find("${not}"), 6, "\\\\${not}");
  const Resolved first = read_text(job, folder, escaped);
  EXPECT_EQ(job.root.name, "weird: name # ${not} \n line");
  for (const bool with_origins : {true, false}) {
    example::Job again;
    const Resolved second = read_text(again, folder, first.dump_yaml(with_origins));
    ASSERT_EQ(second.values().size(), first.values().size());
    for (size_t i = 0; i < first.values().size(); ++i) {
      EXPECT_EQ(second.values()[i].path, first.values()[i].path);
      EXPECT_EQ(second.values()[i].value, first.values()[i].value) << first.values()[i].path;
    }
    EXPECT_EQ(second.hash(), first.hash());
    EXPECT_EQ(second.dump_yaml(false), first.dump_yaml(false));
    EXPECT_EQ(second.has_section("model.validation_ds"), true);
  }
}

TEST(ResolvedTest, DumpShowsValuesAndOrigins) {
  const Folder folder;
  example::Job job;
  RequestSource source;
  source.file = folder.write("x.yaml", "runner: {max_iters: 10}\n");
  source.overrides = {"--precision", "16"};
  const std::string dump = job.read(source).dump_yaml();
  EXPECT_NE(dump.find("  precision: \"16\"  # flag --precision 16\n"), std::string::npos) << dump;
  EXPECT_NE(dump.find("  max_steps: 10  # " + source.file->string() + ":1:21 (as runner.max_iters: 10)\n"),
            std::string::npos);
  EXPECT_NE(dump.find("  devices: auto  # default\n"), std::string::npos);
  EXPECT_NE(dump.find("  spec_augment: null  # default\n"), std::string::npos);
}

TEST(ResolvedTest, JsonIsTyped) {
  example::Job job;
  const auto json = nlohmann::json::parse(
      job.read_words({"trainer.precision=32", "model.optim.lr=1e-3", "trainer.max_steps=7"}).dump_json());
  EXPECT_EQ(json["trainer"]["precision"], "32");
  EXPECT_EQ(json["trainer"]["max_steps"], 7);
  EXPECT_EQ(json["model"]["optim"]["lr"], 0.001);
  EXPECT_EQ(json["model"]["spec_augment"], nullptr);
  EXPECT_EQ(json["trainer"]["detect_anomaly"], false);
}

TEST(ResolvedTest, HashIsOfValuesNotOfSpellingOrigin) {
  example::Job job;
  const uint64_t plain = job.read_words({"model.optim.lr=1e-3", "trainer.max_steps=100"}).hash();
  example::Job other;
  EXPECT_EQ(other.read_words({"--lr=0.001", "runner.max_iters=1e2"}).hash(), plain);
  example::Job third;
  EXPECT_NE(third.read_words({"--lr=0.002", "runner.max_iters=1e2"}).hash(), plain);
  example::Job fourth;
  const Resolved moved = fourth.read_words({"--lr=0.001", "runner.max_iters=1e2", "--work-dir", "/elsewhere"});
  EXPECT_NE(moved.hash(), plain);
  example::Job fifth;
  EXPECT_EQ(moved.hash({"exp_manager"}), fifth.read_words({"--lr=0.001", "max_steps=100"}).hash({"exp_manager"}));
}

}  // namespace
}  // namespace redline::config
