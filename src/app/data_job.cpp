#include "app/data_job.h"

#include "core/error.h"
#include "core/strings.h"
#include "device/machine.h"
#include "models/register.h"
#include "train/job.h"
#include "train/training_run.h"

namespace redline::app {

namespace {

bool is_whole_job(const config::RequestSource& source) {
  if (!source.file) return true;
  const config::Node file = config::read_yaml_file(*source.file);
  return file.find("model") != nullptr || file.find("task") != nullptr || file.find("base") != nullptr;
}

// What a data set's names say about its kind.
std::string guess_kind(const data::DatasetConfig& dataset) {
  if (dataset.synth)
    return dataset.synth->kind == "speech" ? "audio" : dataset.synth->kind == "sequences" ? "parquet" : "images";
  if (!dataset.manifest_filepath.is_null()) return "audio";
  const auto lists = data::name_lists(dataset.path, "path");
  const std::string first = lists.empty() || lists[0].empty() ? "" : lists[0][0];
  if (ends_with(first, ".tar")) return "audio";
  if (ends_with(first, ".parquet")) return "parquet";
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(first, ignored)) {
    if (entry.path().extension() == ".parquet") return "parquet";
  }
  return "images";
}

DataJob read_bare_data_set(const DataArguments& arguments, const config::RequestSource& source) {
  DataJob job;
  config::Schema schema;
  schema.section("", data::DatasetConfig::training_fields().component(), &job.dataset);
  config::bind(config::read_request(source, schema), schema);
  job.dataset.resolve(device::read_machine_facts(), 0);
  job.needs.source_kind = arguments.kind.empty() ? guess_kind(job.dataset) : arguments.kind;
  return job;
}

}  // namespace

void add_data_arguments(CLI::App& command, DataArguments& arguments) {
  add_config_arguments(command, arguments.config);
  command.add_option("--kind", arguments.kind,
                     "Kind of data when CONFIG holds only a data set: audio, parquet or images");
  command.add_flag("--validation", arguments.validation, "The validation data of the job instead of the training data");
}

DataJob read_data_job(const DataArguments& arguments, const CLI::App& command) {
  const config::RequestSource source = arguments.config.source(command);
  if (!is_whole_job(source)) return read_bare_data_set(arguments, source);
  task::Registry registry;
  models::register_all(registry);
  const auto job = train::Job::read(registry, source, device::read_machine_facts());
  const auto task = train::build_within_limit(*job);
  DataJob result;
  result.dataset = arguments.validation ? job->validation_ds() : job->train_ds();
  if (!result.dataset.given())
    throw ConfigError("The job names no data there: give model.train_ds or model.validation_ds.");
  result.needs.source_kind = task->source_kind();
  result.needs.training = !arguments.validation;
  result.needs.collate = task->collate();
  result.needs.sample_transform = task->sample_transform();
  result.needs.group_transform = task->group_transform();
  result.needs.batch_statistics = task->batch_statistics();
  result.needs.accumulate = arguments.validation ? 1 : job->trainer().accumulate_grad_batches;
  return result;
}

}  // namespace redline::app
