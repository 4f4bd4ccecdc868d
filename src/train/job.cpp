#include "train/job.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "core/check.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/strings.h"

namespace redline::train {

namespace {

// Whole sections that a resumed run may change without being another run; single rows say so themselves (same_run()).
const std::vector<std::string>& unhashed_prefixes() {
  static const std::vector<std::string> prefixes = {"exp_manager", "name", "model.validation_ds", "model.test_ds"};
  return prefixes;
}

constexpr int64_t kHeldOutBatch = 8;

const task::TaskEntry& find_task(const task::Registry& registry, const config::RequestSource& source) {
  if (const auto name = config::peek_request(source, "task")) return registry.find(*name);
  if (!source.file) throw ConfigError("Which job? Give a recipe (a YAML file), or a task with task=NAME.");
  std::filesystem::path path = *source.file;
  config::Node file = config::read_yaml_file(path);
  for (int depth = 0; depth < 16; ++depth) {
    if (const task::TaskEntry* entry = registry.recognise(file)) return *entry;
    const config::Node* base = file.find("base");
    if (base == nullptr || !base->is_scalar()) break;
    path = path.parent_path() / base->text();  // relative to the file that names it
    file = config::read_yaml_file(path);
  }
  std::vector<std::string> names;
  for (const task::TaskEntry& entry : registry.entries()) names.push_back(entry.name);
  throw ConfigError(
      fmt::format("{} does not say which task it is, and its keys fit none; add `task: NAME` with one of: {}.",
                  source.file->string(), join(names, ", ")));
}

template <class Holder>
void add_job_sections(config::Schema& schema, Holder& h) {
  schema.section("", h.root);
  schema.section("trainer", h.trainer);
  schema.section("exp_manager", h.exp_manager);
  h.task_config->add_sections(schema);
  schema.section("model.optim", h.optim);
  schema.section("model.train_ds", data::DatasetConfig::training_fields().component(), &h.train_ds);
  schema.section("model.validation_ds", h.validation_ds, /*optional=*/true);
  schema.section("model.validation_ds", h.more_validation, /*optional=*/true);
  schema.section("model.test_ds", h.test_ds, /*optional=*/true);
}

}  // namespace

std::unique_ptr<SchemaHolder> job_schema(const task::TaskEntry& entry) {
  auto holder = std::make_unique<SchemaHolder>();
  holder->task_config = entry.make_config();
  add_job_sections(holder->schema, *holder);
  return holder;
}

std::unique_ptr<Job> Job::read(const task::Registry& registry, const config::RequestSource& source,
                               const MachineFacts& machine, const JobOptions& options) {
  std::unique_ptr<Job> job(new Job);
  job->entry_ = &find_task(registry, source);
  job->task_config_ = job->entry_->make_config();
  job->machine_ = machine;
  struct View {
    RootConfig& root;
    TrainerConfig& trainer;
    OptimConfig& optim;
    ExpManagerConfig& exp_manager;
    data::DatasetConfig &train_ds, &validation_ds, &test_ds;
    MoreValidationConfig& more_validation;
    std::unique_ptr<task::TaskConfig>& task_config;
  } view{job->root_,          job->trainer_, job->optim_,           job->exp_manager_, job->train_ds_,
         job->validation_ds_, job->test_ds_, job->more_validation_, job->task_config_};
  add_job_sections(job->schema_, view);
  const config::Node request = config::read_request(source, job->schema_);
  job->bound_ = config::bind(request, job->schema_);
  job->resolve(options);
  job->resolved_ = config::snapshot(job->schema_, job->bound_);
  for (const std::string& path : job->resolved_.still_auto())
    REDLINE_CHECK(path == "trainer.channels_last",  // the task answers that one, once it is built
                  "each component resolves its own auto: " + path);
  return job;
}

void Job::resolve_precision(const JobOptions& /*options*/) {
  const Precision asked = read_precision(trainer_.precision.value());
  const bool on_cpu = device().is_cpu();
  precision_was_chosen_ = asked == Precision::Fp16Mixed && !trainer_.precision_strict && on_cpu;
  precision_ = device::choose_precision(asked, trainer_.precision_strict, machine_, on_cpu);
  trainer_.precision.set(precision_name(precision_.precision));
}

void Job::resolve(const JobOptions& options) {
  root_.task = entry_->name;
  trainer_.check_and_derive();
  optim_.check();
  threads_were_auto_ = trainer_.intra_op_threads.is_auto();
  if (threads_were_auto_) trainer_.intra_op_threads.set(machine_.cpus_of_rank());
  resolve_precision(options);
  if (trainer_.gpu_ids && device().is_cpu()) log_info("--gpu-ids has no effect: this run is on the CPU.");
  if (trainer_.devices.value() == "-1" && device().is_cpu() && machine_.ranks.world == 1)
    log_info("trainer.devices -1: there is no GPU, so one process on the CPU.");
  const auto resolve_data = [&](data::DatasetConfig& dataset) {
    dataset.resolve(machine_, root_.seed);
    if (dataset.given()) dataset.check();
  };
  resolve_data(train_ds_);
  resolve_data(validation_ds_);
  resolve_data(test_ds_);
  task_config_->resolve(machine_);
  for (config::Auto<std::string>* monitor :
       {&exp_manager_.checkpoint_callback_params.monitor, &exp_manager_.early_stopping_callback_params.monitor})
    if (monitor->is_auto()) monitor->set(task_config_->monitor_metric());
  if (trainer_.intra_op_threads.value() > machine_.cpus_of_rank())
    log_warning(fmt::format(
        "trainer.intra_op_threads is {}, but this process may use {} cores: threads will wait for each other.",
        trainer_.intra_op_threads.value(), machine_.cpus_of_rank()));
  else if (const int64_t busy = trainer_.intra_op_threads.value() + train_ds_.num_workers.value();
           options.needs_data && busy > 2 * machine_.cpus_of_rank())
    log_info(
        fmt::format("{} intra-op threads and {} workers share {} cores; `redline tune` measures which split is best.",
                    trainer_.intra_op_threads.value(), train_ds_.num_workers.value(), machine_.cpus_of_rank()));
}

torch::Device Job::device() const {
  const bool gpu = trainer_.accelerator == "gpu" || trainer_.accelerator == "cuda" ||
                   (trainer_.accelerator == "auto" && machine_.has_cuda);
  if (gpu && !machine_.has_cuda)
    throw ConfigError("trainer.accelerator asks for a GPU, but LibTorch sees none; use accelerator: cpu or auto.");
  if (!gpu) return torch::kCPU;
  int64_t index = machine_.ranks.local_rank;
  if (trainer_.gpu_ids) {
    const std::vector<std::string> ids = split(*trainer_.gpu_ids, ',');
    index = parse_int(ids[static_cast<size_t>(index) % ids.size()]).value_or(0);
  }
  return {torch::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

std::string Job::config_hash() const { return identity_text(resolved_.hash(unhashed_prefixes())); }

std::string Job::request_hash() const {
  std::vector<std::string> unhashed = unhashed_prefixes();
  for (const char* limit : {"trainer.max_steps", "trainer.max_epochs", "trainer.max_iters"}) unhashed.push_back(limit);
  return hex64(bound_.hash(unhashed, config::FilesBy::Place));
}

void Job::set_intra_op_threads(int64_t threads) {
  trainer_.intra_op_threads.set(threads);
  resolved_ = config::snapshot(schema_, bound_);
}

void Job::set_precision(const std::string& name) {
  precision_.precision = read_precision(name);
  trainer_.precision.set(name);
  resolved_ = config::snapshot(schema_, bound_);
}

bool Job::channels_last(const task::Task& task) const {
  return trainer_.channels_last.is_auto() ? task.supports_channels_last() : trainer_.channels_last.value();
}

std::unique_ptr<task::Task> Job::build_task() const {
  try {
    std::unique_ptr<task::Task> task = task_config_->build(seed());
    task->module().to(device());
    if (channels_last(*task)) {
      const torch::NoGradGuard no_grad;
      for (torch::Tensor& parameter : task->module().parameters())
        if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
    }
    return task;
  } catch (const c10::OutOfMemoryError& error) {
    throw OutOfMemoryError(fmt::format(
        "The model does not fit in memory ({}). Use a smaller model, or raise trainer.memory_limit where there is "
        "more.",
        error.what_without_backtrace()));
  }
}

data::TaskNeeds Job::task_needs(const task::Task& task, Part part) const {
  data::TaskNeeds needs;
  needs.kind = task.kind();
  needs.training = part == Part::Train;
  needs.collate = task.collate();
  needs.raw_transform = task.raw_transform();
  needs.sample_transform = task.sample_transform();
  needs.group_transform = task.group_transform();
  needs.batch_statistics = task.batch_statistics();
  needs.channels_last = channels_last(task);
  needs.rank = machine_.ranks.rank;
  needs.world = machine_.ranks.world;
  needs.statistics_across_ranks = trainer_.sync_batchnorm;
  needs.accumulate = part == Part::Train ? trainer_.accumulate_grad_batches : 1;
  return needs;
}

Job::SplitLoaders Job::build_split_loaders(const task::Task& task, double share) const {
  data::TaskNeeds needs = task_needs(task, Part::Train), held_out = task_needs(task, Part::Validation);
  needs.hold_out = {share, false};
  held_out.hold_out = {share, true};
  // In one order and one size, whatever training makes of its batches.
  data::DatasetConfig fixed = train_ds_;
  fixed.shuffle = fixed.drop_last = false;
  fixed.use_bucketing.set(false);
  fixed.batch_duration.reset();
  fixed.batch_tokens.reset();
  fixed.batch_size.set(kHeldOutBatch);
  fixed.micro_batch_size.set(kHeldOutBatch);
  fixed.num_workers.set(0);
  fixed.cache = "none";
  return {data::build_loader(train_ds_, needs), data::build_loader(fixed, held_out)};
}

std::unique_ptr<data::Loader> Job::build_loader(const task::Task& task, Part part,
                                                const std::filesystem::path& run_directory) const {
  const data::DatasetConfig& dataset = part == Part::Train        ? train_ds_
                                       : part == Part::Validation ? validation_ds_
                                                                  : test_ds_;
  data::TaskNeeds needs = task_needs(task, part);
  if (!needs.kind->given(dataset, needs.training)) {
    if (part != Part::Train) return nullptr;
    throw ConfigError("The job names no training data: give model.train_ds.manifest_filepath, .path or .synth.");
  }
  needs.run_directory = run_directory;
  return data::build_loader(dataset, needs);
}

std::vector<Job::NamedLoader> Job::build_more_validation(const task::Task& task,
                                                         const std::filesystem::path& run_directory) const {
  const config::Node& also = more_validation_.also;
  std::vector<NamedLoader> loaders;
  if (also.is_null()) return loaders;
  if (!also.is_map() || !validation_ds_.given())
    throw ConfigError(
        "model.validation_ds.also maps names to data beside the validation's own: also: {clean: clean.json}.");
  if (machine_.ranks.world > 1)
    throw ConfigError("model.validation_ds.also is measured by one process; leave it out with several ranks.");
  for (const auto& [name, names] : also.entries()) {
    if (name.empty() || name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string::npos)
      throw ConfigError(fmt::format(
          "model.validation_ds.also: '{}' becomes part of metric names; use lower-case letters, digits and _.",
          printable(name)));
    data::DatasetConfig dataset = validation_ds_;
    dataset.manifest_filepath = dataset.path = config::Node();
    dataset.synth.reset();
    data::TaskNeeds needs = task_needs(task, Part::Validation);
    (needs.kind->data_key() == "manifest_filepath" ? dataset.manifest_filepath : dataset.path) = names;
    needs.run_directory = run_directory;
    loaders.push_back({name, data::build_loader(dataset, needs)});
  }
  return loaders;
}

}  // namespace redline::train
