// What needs LibTorch: a job file to a resolved job with every section of the program, and a checkpoint to a loop that
// continues from it. One file, so that LibTorch's headers are paid once; the readers among it are compiled in here so
// that libFuzzer sees which of their branches an input takes.
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/own_folder.h"
#include "target.h"
#include "train/checkpoint/generation.h"
#include "train/checkpoint/loading.h"
#include "train/testing/harness.h"

namespace redline::fuzz {

namespace {

using namespace redline::train;

// The three files of a generation, each behind its length (four bytes).
struct Parts {
  std::string state, model, optimizer;
};

std::string join_parts(const Parts& parts) {
  std::string out;
  for (const std::string* part : {&parts.state, &parts.model, &parts.optimizer}) {
    const auto size = static_cast<uint32_t>(part->size());
    out.append(reinterpret_cast<const char*>(&size), 4);
    out += *part;
  }
  return out;
}

bool cut_parts(std::string_view bytes, Parts& parts) {
  for (std::string* part : {&parts.state, &parts.model, &parts.optimizer}) {
    uint32_t size = 0;
    if (bytes.size() < 4) return false;
    std::memcpy(&size, bytes.data(), 4);
    bytes.remove_prefix(4);
    if (size > bytes.size()) return false;
    *part = bytes.substr(0, size);
    bytes.remove_prefix(size);
  }
  return bytes.empty();
}

// Lengths true again: cut where the next file begins is unknown, so all that is left goes to the last one.
void repair_parts(std::string& bytes) {
  size_t at = 0;
  for (int part = 0; part < 3; ++part) {
    if (bytes.size() < at + 4) bytes.resize(at + 4);
    uint32_t size = 0;
    std::memcpy(&size, bytes.data() + at, 4);
    size = static_cast<uint32_t>(std::min<size_t>(size, bytes.size() - at - 4));
    if (part == 2) size = static_cast<uint32_t>(bytes.size() - at - 4);
    std::memcpy(bytes.data() + at, &size, 4);
    at += 4 + size;
  }
}

std::filesystem::path scratch() {
  static const std::filesystem::path folder = memory_folder();
  return folder;
}

// Written as a save writes it, with a manifest that fits: damage is found elsewhere, this is about what is believed.
bool resume_from(std::span<const std::byte> bytes) {
  static testing::Loop loop;
  Parts parts;
  if (!cut_parts(text_of(bytes), parts)) return false;
  const auto file = [](const std::string& name, const std::string& content) {
    return GenerationFile{name, [&content](WritableFile& out) { out.write(std::as_bytes(std::span(content))); }, {}};
  };
  const std::vector<GenerationFile> files = {file(kModelFile, parts.model), file(kOptimizerFile, parts.optimizer),
                                             file(kStateFile, parts.state)};
  write_generation(scratch(), {.step = 2, .monitor = "", .metric = {}}, files, posix_file_ops());
  const auto generation = scratch() / generation_name(2);
  bool accepted = false;
  try {
    const LoadedCheckpoint loaded = load_checkpoint(generation);
    loop.trainer->load(loaded.state);
    require(!loop.trainer->state().state_json.empty(), "a resumed loop has a state");
    accepted = true;
  } catch (const Error& error) {
    require(std::string_view(error.what()).size() < 4000, "a refusal is short");
  }
  for (const auto& stored : files) std::filesystem::remove(generation / stored.name);
  std::filesystem::remove(generation / kManifestName);
  std::filesystem::remove(generation);
  return accepted;
}

std::vector<std::string> resume_seeds() {
  testing::Loop loop;
  loop.trainer->run_steps(2);
  const CheckpointState state = loop.trainer->state();
  Parts parts{state.state_json, "", ""};
  const auto store = [](const NamedTensors& tensors, std::string& out) {
    const auto path = scratch() / "tensors";
    write_safetensors_atomic(path, tensors);
    out = read_file(path, uint64_t{1} << 24);
    std::filesystem::remove(path);
  };
  store(state.model, parts.model);
  store(state.optimizer, parts.optimizer);
  return {join_parts(parts)};
}

bool resolve_job(std::span<const std::byte> bytes) {
  const MemoryFile file(text_of(bytes));
  config::RequestSource source;
  source.file = file.path();
  MachineFacts machine;
  try {
    const auto job = Job::read(testing::registry(), source, machine);
    require(!job->config_hash().empty() && !job->resolved().dump_yaml().empty(), "a resolved job can be shown");
    return true;
  } catch (const Error& error) {
    require(std::string_view(error.what()).size() < 4000, "a refusal is short");
    return false;
  }
}

std::vector<std::string> resolve_seeds() {
  return {
      "task: curve\nseed: 3\nmodel:\n  features: 4\n  train_ds: {batch_size: 8, num_workers: 0}\n  optim: {name: "
      "adamw, lr: 0.01, betas: [0.9, 0.98], sched: {name: CosineAnnealing, warmup_steps: 5}}\ntrainer: {max_steps: "
      "10, precision: 32, accumulate_grad_batches: 2, max_time: 1h}\nexp_manager: {ema: {enable: true}}\n"};
}

}  // namespace

std::vector<Target> job_targets() {
  return {{"checkpoint", resume_from, resume_seeds, repair_parts}, {"job", resolve_job, resolve_seeds}};
}

}  // namespace redline::fuzz
