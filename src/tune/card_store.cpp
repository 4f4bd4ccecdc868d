#include "tune/card_store.h"

#include <fmt/format.h>

#include "config/yaml_writer.h"
#include "core/error.h"
#include "core/file_ops.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/strings.h"
#include "data/build_loader.h"
#include "data/plan_stats.h"

namespace redline::tune {

std::string request_text(const Allow& allow, int64_t memory_bytes, const std::set<std::string>& pinned) {
  std::string text = fmt::format("allow{}{}{} memory={}", allow.numerics ? " numerics" : "",
                                 allow.order ? " order" : "", allow.optimisation ? " optimisation" : "", memory_bytes);
  for (const std::string& path : pinned) text += " " + path;
  return text;
}

bool names_the_run(const std::string& path) {
  static const std::set<std::string> kPaths = {"name",
                                               "exp_manager.exp_dir",
                                               "exp_manager.name",
                                               "exp_manager.run_dir",
                                               "exp_manager.resume",
                                               "exp_manager.resume_if_exists"};
  return kPaths.count(path) != 0;
}

measure::TuneFingerprint fingerprint(const train::Job& job, const task::Task& task, const std::string& request,
                                     const std::string& versions) {
  measure::TuneFingerprint print;
  std::string values = job.entry().name;
  for (const config::ResolvedValue& value : job.resolved().values()) {
    if (names_the_run(value.path)) continue;
    // What a component resolved from the machine belongs to the machine, not to the job.
    const bool resolved = value.origin.kind == config::OriginKind::Resolved;
    values += "\n" + value.path + "=" + (resolved ? std::string("auto") : config::write_yaml_flow(value.value));
  }
  print.model = job.entry().name + " " + hex64(hash64(values));
  const data::TaskNeeds needs = job.task_needs(task, train::Job::Part::Train);
  const data::OpenedData data = data::open_data(job.train_ds(), needs);
  const auto lengths = data::length_stats(data.source->size(), [&](int64_t i) { return data.source->length(i); });
  print.data = fmt::format("{} samples, median {:.4g}, total {:.6g} {}, {}", lengths.count, lengths.median,
                           lengths.total, data.source->length_unit(), hex64(data.source->fingerprint()));
  const MachineFacts& m = job.machine();
  print.machine = fmt::format("{}, {} cores, {} GiB, avx2 {} avx512 {} bf16 {} fp16 {} amx {}, {} GPUs", m.cpu_model,
                              m.allowed_cpus, m.memory_limit_bytes >> 30, m.avx2, m.avx512f, m.avx512_bf16,
                              m.avx512_fp16, m.amx_bf16, m.gpus.size());
  print.versions = fmt::format("{}, card {}", versions, measure::kTuneCardVersion);
  print.request = request;
  return print;
}

std::filesystem::path card_path(const train::Job& job, const measure::TuneFingerprint& print) {
  const std::string key = print.model + "\n" + print.data + "\n" + print.request;
  return std::filesystem::path(job.train_ds().cache_dir) / "tune" / (hex64(hash64(key)) + ".json");
}

std::optional<measure::TuneCard> load_card(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  try {
    return measure::tune_card_from_json(read_file(path, size_t{16} << 20), path.string());
  } catch (const Error& error) {
    log_warning(fmt::format("{} The job is tuned anew.", error.what()));
    return std::nullopt;
  }
}

std::string card_difference(const measure::TuneFingerprint& card, const measure::TuneFingerprint& now) {
  if (card.versions != now.versions)
    return fmt::format("The tune card was made by another version ({}; this is {}).", card.versions, now.versions);
  if (card.model != now.model) return "The tune card belongs to another job: its task, model or options differ.";
  if (card.data != now.data)
    return fmt::format("The tune card belongs to other data ({}; here {}).", card.data, now.data);
  if (card.request != now.request)
    return fmt::format("The tune card was made under other permissions ({}; now {}).", card.request, now.request);
  if (card.machine != now.machine)
    return fmt::format("The tune card comes from another machine ({}; this is {}).", card.machine, now.machine);
  return {};
}

}  // namespace redline::tune
