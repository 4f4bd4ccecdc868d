#include "tune/cards/card_store.h"

#include <fmt/format.h>

#include "config/yaml_writer.h"
#include "core/error.h"
#include "core/file_ops.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/strings.h"
#include "data/build_loader.h"
#include "data/plan_stats.h"
#include "tune/search/companions.h"

namespace redline::tune {

std::string request_text(const Allow& allow, int64_t memory_bytes, const std::set<std::string>& pinned,
                         const std::string& certificate) {
  std::string text = fmt::format("allow{}{}{} memory={}", allow.numerics ? " numerics" : "",
                                 allow.order ? " order" : "", allow.optimisation ? " optimisation" : "", memory_bytes);
  text += certificate;
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

Setting card_setting(const measure::TuneCard& card) {
  Setting values;
  for (const auto& [path, value] : card.values) values[path] = value;
  return values;
}

namespace {

// As the candidates ask for it: rounding needs no word, another precision or decoder does.
config::Effect consent_for(const config::Row& row) {
  if (row.effect >= config::Effect::Order) return row.effect;
  return row.rule == "precision" || row.rule == "decode" ? config::Effect::Numerics : config::Effect::Nothing;
}

// What moves along with the batch and the precision that `values` set; nullopt when the batch is no number.
std::optional<Setting> companions_of(const JobView& view, const Setting& values) {
  Setting batch;
  for (const char* path : {kBatchPath, kAccumulatePath}) {
    const auto found = values.find(path);
    if (found == values.end()) continue;
    const auto number = parse_int(found->second);
    if (!number || *number < 1 || *number > INT32_MAX) return std::nullopt;
    batch.insert(*found);
  }
  Setting all = with_companions(view, batch);
  if (values.count("trainer.precision") != 0) all["trainer.precision_strict"] = "true";
  return all;
}

}  // namespace

std::string setting_refusal(const train::Job& job, const JobView& view, const Allow& allow, const Setting& values) {
  const auto companions = companions_of(view, values);
  if (!companions) return "its batch is not a number.";
  for (const auto& [path, value] : values) {
    const std::string named = "'" + printable(path) + "'";
    const config::ResolvedValue* const option = job.resolved().find(path);
    if (option != nullptr && option->row != nullptr && option->row->tunable) {
      if (const std::string missing = allow.missing(consent_for(*option->row)); !missing.empty())
        return fmt::format("it sets {}, which needs --allow {}.", named, missing);
      continue;
    }
    const auto follows = companions->find(path);
    if (follows == companions->end())
      return fmt::format("it sets {}, which is not an option that a tuner may move.", named);
    if (follows->second != value)
      return fmt::format("it sets {} to {}; {} would follow from its batch.", named, printable(value), follows->second);
  }
  return {};
}

std::optional<measure::TuneCard> load_card(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  try {
    if (!std::filesystem::is_regular_file(path, ignored))
      throw DataError(fmt::format("The tune card '{}' is not a file.", printable(path.string())));
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
