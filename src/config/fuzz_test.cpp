// 10,000 mutated configs with random overrides: a config is read, or a ConfigError says why not. Nothing else may come
// out, and what was read must dump to something that reads back equal. REDLINE_SLOW=1 runs a hundred times as many.
#include <gtest/gtest.h>

#include <cstdlib>

#include "config/example_job.h"
#include "config/test_files.h"
#include "core/philox.h"
#include "core/strings.h"

namespace redline::config {
namespace {

const std::vector<std::string> kSeeds = {
    "name: nest\nseed: 1\nuse_amp: true\nrunner: {max_iters: 100}\nmodel:\n  sample_rate: 16000\n  train_ds:\n    "
    "manifest_filepath: ???\n"
    "    sample_rate: ${model.sample_rate}\n    batch_size: 8\n    num_workers: auto\n    max_duration: 60.0\n  "
    "validation_ds: null\n"
    "  encoder:\n    _target_: nemo.collections.asr.modules.ConformerEncoder\n    d_model: 512\n    att_context_size: "
    "[-1, -1]\n"
    "  spec_augment: {freq_masks: 0}\n  optim:\n    name: adamw\n    lr: 5.0\n    betas: [0.9, 0.98]\n    sched: "
    "{name: NoamAnnealing, warmup_steps: 25000}\n"
    "trainer:\n  devices: -1\n  precision: 32\n  strategy: ddp\n  accelerator: auto\n  logger: false\nexp_manager: "
    "{exp_dir: null}\n",
    "trainer: {max_steps: 10, save_every_seconds: 1h30m, max_buffer_bytes: 512MiB, strategy: {_target_: DDPStrategy}}\n"
    "model: {extra: {a: [1, {b: \"x\\ny\"}], c: 'it''s'}}\npresets:\n  quick: {trainer.max_steps: 1, batch_size: 2}\n  "
    "words: [seed=3, --use_amp]\n",
    "vars: {x: 4, y: '${.x}'}\nmodel:\n  num_classes: ${vars.x}\n  train_ds: {batch_size: '${vars.y}', "
    "manifest_filepath: [a, b]}\n"
    "  validation_ds: ${model.train_ds}\nname: '${task}-${vars.x}'\ntask: |\n  folded\n  text\n",
};
const std::vector<std::string> kWords = {"trainer.precision=16-mixed",
                                         "--batch_size",
                                         "4",
                                         "--pin_memory",
                                         "--no-shuffle",
                                         "~model.validation_ds",
                                         "+seed=3",
                                         "--options",
                                         "runner.max_iters=5",
                                         "model.optim.betas=[0.1,0.2]",
                                         "--use_amp",
                                         "model.extra.q=1",
                                         "name=${task}",
                                         "lr=1e-3",
                                         "model.encoder={d_model: 8}",
                                         "--work-dir=/x"};
const std::vector<std::string> kTokens = {":",
                                          "\n",
                                          "  ",
                                          "- ",
                                          "[",
                                          "]",
                                          "{",
                                          "}",
                                          "${",
                                          "}",
                                          "&a ",
                                          "*a",
                                          "!!x ",
                                          "'",
                                          "\"",
                                          "#",
                                          "???",
                                          "null",
                                          "~",
                                          "auto",
                                          "-1",
                                          "1e999",
                                          "nan",
                                          "true",
                                          "base: x.yaml\n",
                                          "presets:",
                                          "_target_: ",
                                          "\t",
                                          "\x01",
                                          "\xff",
                                          "%",
                                          "|\n",
                                          ">\n",
                                          "? ",
                                          "---\n",
                                          "...\n",
                                          "model",
                                          "trainer",
                                          ".",
                                          ",",
                                          "\\",
                                          "<<: ",
                                          "\xf0\x9f\x8e\xa7",
                                          "999999999999999999999"};

std::string mutated(std::string text, KeyedStream& draw) {
  const auto place = [&] { return static_cast<size_t>(draw.uniform_int(0, static_cast<int64_t>(text.size()))); };
  const auto rounds = draw.uniform_int(0, 6);
  for (int64_t i = 0; i < rounds; ++i) {
    const size_t at = place();
    switch (draw.uniform_int(0, 5)) {
      case 0:
        text.insert(at, kTokens[static_cast<size_t>(draw.uniform_int(0, static_cast<int64_t>(kTokens.size()) - 1))]);
        break;
      case 1:
        text.erase(at, static_cast<size_t>(draw.uniform_int(1, 12)));
        break;
      case 2: {  // a piece copied elsewhere
        const std::string piece = text.substr(at, static_cast<size_t>(draw.uniform_int(1, 80)));
        text.insert(place(), piece);
        break;
      }
      case 3:
        if (at < text.size()) text[at] = static_cast<char>(draw.uniform_int(0, 255));
        break;
      case 4: {  // a whole line twice or gone
        const size_t end = std::min(text.find('\n', at), text.size() - 1);
        const size_t begin = text.rfind('\n', at) + 1;
        if (end > begin)
          draw.uniform() < 0.5 ? text.erase(begin, end - begin)
                               : text.insert(begin, text.substr(begin, end - begin + 1));
        break;
      }
      default:
        text.resize(at);
        break;
    }
    if (text.size() > 4000 || text.empty()) break;
  }
  return text;
}

// A new file each time: rewriting one in place makes some file systems flush it.
std::filesystem::path put(const testing::Folder& folder, const std::string& name, const std::string& text) {
  std::filesystem::remove(folder.path() / name);
  posix_file_ops().create(folder.path() / name)->write(std::as_bytes(std::span(text.data(), text.size())));
  return folder.path() / name;
}

void feed_mutants(int64_t count, uint64_t seed, int64_t& read, int64_t& refused) {
  const testing::Folder folder;
  for (int64_t i = 0; i < count; ++i) {
    KeyedStream draw(seed, 0, static_cast<uint64_t>(i), 0);
    const std::string text =
        mutated(kSeeds[static_cast<size_t>(draw.uniform_int(0, static_cast<int64_t>(kSeeds.size()) - 1))], draw);
    RequestSource source;
    for (int64_t k = draw.uniform_int(0, 3); k > 0; --k) {
      const std::string& word =
          kWords[static_cast<size_t>(draw.uniform_int(0, static_cast<int64_t>(kWords.size()) - 1))];
      source.overrides.push_back(draw.uniform() < 0.7 ? word : mutated(word, draw));
    }
    if (draw.uniform() < 0.2) source.preset = draw.uniform() < 0.5 ? "quick" : "words";
    example::Job job;
    try {
      source.file = put(folder, "x.yaml", text);
      const Resolved resolved = job.read(source);
      ++read;
      RequestSource again;
      const std::string dump = resolved.dump_yaml();
      again.file = put(folder, "again.yaml", dump);
      example::Job second;
      ASSERT_EQ(second.read(again).hash(), resolved.hash()) << text << "\n-----\n"
                                                            << join(source.overrides, " ") << "\n-----\n"
                                                            << dump;
      ASSERT_FALSE(resolved.dump_json().empty());
    } catch (const ConfigError& error) {
      ++refused;
      ASSERT_EQ(printable(error.what()), error.what()) << text;
      ASSERT_LT(std::string_view(error.what()).size(), 2000u) << text;
    } catch (const std::exception& error) {
      FAIL() << "case " << i << ": " << error.what() << "\n" << text << "\n-----\n" << join(source.overrides, " ");
    }
  }
}

TEST(ConfigFuzz, MutatedConfigsAreReadOrRefusedSlow) {
  const char* slow = std::getenv("REDLINE_SLOW");
  const int64_t count = slow != nullptr && std::string_view(slow) == "1" ? 1'000'000 : 10'000;
  int64_t read = 0, refused = 0;
  feed_mutants(count, 1, read, refused);
  EXPECT_GT(read, count / 20) << "the mutations leave enough alive to test the other half";
  EXPECT_GT(refused, count / 20);
  EXPECT_EQ(read + refused, count);
}

}  // namespace
}  // namespace redline::config
