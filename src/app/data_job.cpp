#include "app/data_job.h"

#include "core/error.h"
#include "data/kinds.h"
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

DataJob read_bare_data_set(const DataArguments& arguments, const config::RequestSource& source) {
  DataJob job;
  config::Schema schema;
  schema.section("", data::DatasetConfig::training_fields().component(), &job.dataset);
  config::bind(config::read_request(source, schema), schema);
  job.dataset.resolve(device::read_machine_facts(), 0);
  job.needs.kind = arguments.kind.empty() ? data::guess_kind(job.dataset) : data::kind_named(arguments.kind);
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
  result.needs = job->task_needs(*task, arguments.validation ? train::Job::Part::Validation : train::Job::Part::Train);
  return result;
}

}  // namespace redline::app
