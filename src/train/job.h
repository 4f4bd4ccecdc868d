// A job: what the user asked for, bound to every component's options and resolved for this machine. Building tasks and
// loaders from it is here too, so that train, trial, probe, eval and tune all start the same way.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/job.h"
#include "core/machine_facts.h"
#include "data/build_loader.h"
#include "data/dataset_config.h"
#include "data/loader.h"
#include "device/precision_choice.h"
#include "task/registry.h"
#include "train/loop/loop_settings.h"
#include "train/options/exp_manager_options.h"
#include "train/options/optim_options.h"
#include "train/options/trainer_options.h"

namespace redline::train {

struct JobOptions {
  bool needs_data = true;  // probe brings its own batch: the train_ds section may be empty
};

class Job {
 public:
  // Finds the task (`task:` or by what the file looks like), binds and resolves. Throws ConfigError.
  static std::unique_ptr<Job> read(const task::Registry& registry, const config::RequestSource& source,
                                   const MachineFacts& machine, const JobOptions& options = {});

  const task::TaskEntry& entry() const { return *entry_; }
  const RootConfig& root() const { return root_; }
  const TrainerConfig& trainer() const { return trainer_; }
  const OptimConfig& optim() const { return optim_; }
  const ExpManagerConfig& exp_manager() const { return exp_manager_; }
  const data::DatasetConfig& train_ds() const { return train_ds_; }
  const data::DatasetConfig& validation_ds() const { return validation_ds_; }
  const data::DatasetConfig& test_ds() const { return test_ds_; }
  const config::Resolved& resolved() const { return resolved_; }
  const MachineFacts& machine() const { return machine_; }
  Precision precision() const { return precision_.precision; }
  const std::string& precision_warning() const { return precision_.warning; }
  torch::Device device() const;
  bool threads_were_auto() const { return threads_were_auto_; }
  // From this machine's measured rates, which may come out otherwise at the next start.
  bool precision_was_chosen() const { return precision_was_chosen_; }
  // Of everything that changes what is computed; not of where it is written, limits of time and memory, or worker
  // counts.
  std::string config_hash() const;
  // Of what was asked for, before `auto` became a number of this machine, and without the limits of steps and epochs
  // either: the same command line is the same job also on fewer cores, and one that may train longer is too.
  std::string request_hash() const;
  uint64_t seed() const { return static_cast<uint64_t>(root_.seed); }

  std::vector<std::string> bound_to_batch() const { return task_config_->bound_to_batch(); }
  std::string monitor_metric() const { return task_config_->monitor_metric(); }

  // Weights drawn from the seed; moved to the device and memory format of the run.
  std::unique_ptr<task::Task> build_task() const;
  bool channels_last(const task::Task& task) const;  // of weights here, of pictures in the workers
  enum class Part { Train, Validation, Test };
  // What the task wants of its data.
  data::TaskNeeds task_needs(const task::Task& task, Part part) const;
  // Null when that part names no data. `run_directory` gets bad_samples.jsonl; may be empty.
  std::unique_ptr<data::Loader> build_loader(const task::Task& task, Part part,
                                             const std::filesystem::path& run_directory) const;

  // model.validation_ds.also, by name.
  struct NamedLoader {
    std::string name;
    std::unique_ptr<data::Loader> loader;
  };
  std::vector<NamedLoader> build_more_validation(const task::Task& task,
                                                 const std::filesystem::path& run_directory) const;

  // Training without a fixed share of its samples, and those by themselves as validation data.
  struct SplitLoaders {
    std::unique_ptr<data::Loader> train, held_out;
  };
  SplitLoaders build_split_loaders(const task::Task& task, double share) const;

  // For resume: the value of the checkpoint instead of this machine's.
  void set_intra_op_threads(int64_t threads);
  void set_precision(const std::string& name);

 private:
  Job() = default;
  void resolve(const JobOptions& options);
  void resolve_precision(const JobOptions& options);

  const task::TaskEntry* entry_ = nullptr;
  std::unique_ptr<task::TaskConfig> task_config_;
  RootConfig root_;
  TrainerConfig trainer_;
  OptimConfig optim_;
  ExpManagerConfig exp_manager_;
  data::DatasetConfig train_ds_, validation_ds_, test_ds_;
  MoreValidationConfig more_validation_;
  config::Schema schema_;
  config::Resolved bound_, resolved_;
  MachineFacts machine_;
  device::PrecisionChoice precision_;
  bool threads_were_auto_ = false, precision_was_chosen_ = false;
};

// Everything the loop needs to know, from a resolved job. `notes` gets sentences worth a warning.
LoopSettings make_loop_settings(const Job& job, const task::Task& task, const data::Loader& train,
                                std::vector<std::string>* notes = nullptr);

// The schema of a task's jobs, for `redline options` and docs: `holder` owns the objects.
struct SchemaHolder {
  std::unique_ptr<task::TaskConfig> task_config;
  RootConfig root;
  TrainerConfig trainer;
  OptimConfig optim;
  ExpManagerConfig exp_manager;
  data::DatasetConfig train_ds, validation_ds, test_ds;
  MoreValidationConfig more_validation;
  config::Schema schema;
};
std::unique_ptr<SchemaHolder> job_schema(const task::TaskEntry& entry);

}  // namespace redline::train
