// A job file with overrides: read and resolved, or refused by a ConfigError. What was read must dump to something that
// reads back equal. The overrides are the lines that follow a line "%%%".
#include "config/testing/example_job.h"
#include "core/strings.h"
#include "target.h"

namespace redline::fuzz {

namespace {

using namespace redline::config;

constexpr std::string_view kOverridesBegin = "\n%%%\n";

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

bool read_job(std::span<const std::byte> bytes) {
  const std::string_view all = text_of(bytes);
  const size_t cut = std::min(all.find(kOverridesBegin), all.size());
  const MemoryFile file(all.substr(0, cut));
  RequestSource source;
  source.file = file.path();
  if (cut < all.size())
    for (const auto& word : split(all.substr(cut + kOverridesBegin.size()), '\n'))
      if (!word.empty()) source.overrides.emplace_back(word);
  try {
    example::Job job;
    const Resolved resolved = job.read(source);
    const MemoryFile dump(resolved.dump_yaml());
    RequestSource again;
    again.file = dump.path();
    example::Job second;
    require(second.read(again).hash() == resolved.hash(), "a dumped job reads back equal");
    require(!resolved.dump_json().empty(), "a job can be shown as JSON");
    return true;
  } catch (const ConfigError& error) {
    require(printable(error.what()) == error.what(), "a refusal is printable");
    require(std::string_view(error.what()).size() < 2000, "a refusal is short");
    return false;
  }
}

// Not every word fits every file; those that are refused are no seeds.
std::vector<std::string> job_seeds() {
  std::vector<std::string> seeds;
  for (const std::string& file : kSeeds) {
    std::vector<std::string> tries = {file + "\n%%%\nmodel.train_ds.manifest_filepath=x\n"};
    for (const std::string& word : kWords) tries.push_back(tries[0] + word + "\n");
    tries.push_back(tries[0] + "--batch_size\n4\n");
    for (auto& text : tries)
      if (read_job(std::as_bytes(std::span(text)))) seeds.push_back(std::move(text));
  }
  require(seeds.size() > 20, "most words fit some file");
  return seeds;
}

}  // namespace

std::vector<Target> config_targets() { return {{"config", read_job, job_seeds}}; }

}  // namespace redline::fuzz
