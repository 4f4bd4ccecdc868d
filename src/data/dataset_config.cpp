// resolve() and check() of the options; the table itself is in dataset_fields.cpp.
#include "data/dataset_config.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "data/audio/name_ranges.h"

namespace redline::data {

namespace {

[[noreturn]] void bad_names(const config::Node& node, const char* key) {
  throw ConfigError(node.origin.text() + ": " + key + " must be a name, a list of names or a list of lists of names.");
}

// "a,b" is two names, as in NeMo, unless a comma stands inside braces.
void add_names(const config::Node& node, const char* key, std::vector<std::string>& names) {
  if (!node.is_scalar() || node.text().empty()) bad_names(node, key);
  if (node.is_missing_marker())
    throw ConfigError(node.origin.text() + ": " + std::string(key) +
                      " must be given (it is NeMo's three question marks).");
  int depth = 0;
  std::string one;
  const auto flush = [&] {
    const std::string name = trim(one);
    one.clear();
    if (name.empty()) return;
    for (auto& expanded : expand_names(name)) names.push_back(std::move(expanded));
  };
  for (char c : node.text()) {
    if (c == '{') ++depth;
    if (c == '}') --depth;
    if (c == ',' && depth == 0 && node.text().find("_OP_") == std::string::npos)
      flush();
    else
      one += c;
  }
  flush();
}

}  // namespace

std::vector<std::vector<std::string>> name_lists(const config::Node& node, const char* key) {
  std::vector<std::vector<std::string>> parts;
  if (node.is_null()) return parts;
  if (!node.is_list()) {
    add_names(node, key, parts.emplace_back());
    return parts;
  }
  const bool nested = !node.items().empty() && node.items()[0].is_list();
  if (!nested) parts.emplace_back();
  for (const config::Node& item : node.items()) {
    if (item.is_list() != nested) bad_names(item, key);
    if (nested) {
      parts.emplace_back();
      for (const config::Node& name : item.items()) add_names(name, key, parts.back());
    } else {
      add_names(item, key, parts.back());
    }
  }
  if (std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part.empty(); }))
    throw ConfigError(node.origin.text() + ": " + std::string(key) + " is an empty list.");
  return parts;
}

bool DatasetConfig::given() const { return !manifest_filepath.is_null() || !path.is_null() || synth.has_value(); }

void DatasetConfig::resolve(const MachineFacts& machine, int64_t run_seed) {
  if (seed.is_auto()) seed.set(run_seed);
  std::error_code failed;  // absolute, so that what a run keeps of it means the same elsewhere
  const auto folder = std::filesystem::absolute(cache_dir, failed);
  if (!failed) cache_dir = folder.lexically_normal().string();
  const bool by_length = batch_duration.has_value() || batch_tokens.has_value();
  if (batch_size.is_auto()) batch_size.set(by_length ? 0 : 8);  // 0: bounded by length alone
  if (micro_batch_size.is_auto()) micro_batch_size.set(by_length ? 0 : batch_size.value());
  if (use_bucketing.is_auto()) use_bucketing.set(num_buckets > 1 || !bucket_duration_bins.empty());
  if (use_bucketing.value() && num_buckets <= 1 && bucket_duration_bins.empty()) num_buckets = 8;
  if (allow_absolute.is_auto()) allow_absolute.set(!is_tarred);
  if (shuffle_window.is_auto()) shuffle_window.set(8);
  if (num_workers.is_auto()) {
    // A GPU leaves the cores to the workers; on a CPU they share them with the arithmetic.
    const int cores = machine.cpus_of_rank();
    num_workers.set(machine.has_cuda ? std::min(cores, 16) : std::clamp(cores / 2, 1, 8));
  } else if (num_workers.value() > machine.cpus_of_rank()) {
    log_warning_once("num_workers is " + std::to_string(num_workers.value()) + " but this process may use " +
                     std::to_string(machine.cpus_of_rank()) + (machine.cpus_of_rank() == 1 ? " core" : " cores") +
                     ": more workers than cores only take turns.");
  }
  if (pin_memory && !machine.can_pin_memory) {
    log_warning_once(
        "pin_memory: this machine has no device that copies from pinned memory; batches stay in ordinary memory "
        "instead.");
    pin_memory = false;
  }
}

void DatasetConfig::check() const {
  const int kinds = (manifest_filepath.is_null() ? 0 : 1) + (path.is_null() ? 0 : 1) + (synth ? 1 : 0);
  if (kinds == 0)
    throw ConfigError(
        "The data set names no data: give manifest_filepath (audio), path (Parquet, pictures, tars) or synth.");
  if (kinds > 1) throw ConfigError("Give one of manifest_filepath, path and synth, not several.");
  if (batch_size.value() == 0 && !batch_duration && !batch_tokens)
    throw ConfigError("batch_size must be at least 1 (0 needs batch_duration or batch_tokens).");
  if (batch_duration && batch_tokens) throw ConfigError("Give batch_duration or batch_tokens, not both.");
  if (min_duration && max_duration && *min_duration > *max_duration) {
    throw ConfigError("min_duration (" + format_double(*min_duration) + ") is above max_duration (" +
                      format_double(*max_duration) + ").");
  }
  if (!use_dynamic_padding && !max_sequence_length && !max_duration) {
    throw ConfigError(
        "use_dynamic_padding: false pads to a fixed length, so max_sequence_length or max_duration must say which.");
  }
  if (is_tarred && tarred_audio_filepaths.is_null()) throw ConfigError("is_tarred: true needs tarred_audio_filepaths.");
  if (!is_tarred && !tarred_audio_filepaths.is_null())
    throw ConfigError("tarred_audio_filepaths is given but is_tarred is false.");
  if (!bucketing_batch_size.is_null() && batch_size.value() != 1) {
    throw ConfigError("bucketing_batch_size sets the batch per bucket and needs batch_size: 1, as in NeMo.");
  }
  if (is_concat && concat_sampling_technique == "random") {
    double sum = 0.0;
    for (double p : concat_sampling_probabilities) sum += p;
    if (std::fabs(sum - 1.0) > 1e-6)
      throw ConfigError("concat_sampling_probabilities must add up to 1 for concat_sampling_technique: random.");
  }
  AudioOptions::check();
  ImageOptions::check();
}

}  // namespace redline::data
