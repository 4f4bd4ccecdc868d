// A loop on the example task (docs/new_task.md) with all recording on, as `redline train` makes it, for benches that
// step it.
#pragma once

#include <stdlib.h>

#include <filesystem>

#include "device/machine.h"
#include "train/loop/trainer.h"
#include "train/run/run_observer.h"
#include "train/testing/example_task.h"
#include "train/training_run.h"

namespace redline::bench {

struct Setup {
  // No folder: no trainer, only what a hand-written loop needs.
  Setup(const std::vector<std::string>& overrides, const std::filesystem::path& folder) {
    example::register_curve(registry);
    config::RequestSource source;
    source.overrides = {"task=curve", "model.train_ds.num_workers=1", "trainer.intra_op_threads=1",
                        "trainer.max_steps=-1", "model.dropout=0.1"};
    source.overrides.insert(source.overrides.end(), overrides.begin(), overrides.end());
    job = train::Job::read(registry, source, device::read_machine_facts());
    train::prepare_process(*job);
    task = job->build_task();
    loader = job->build_loader(*task, train::Job::Part::Train, {});
    if (folder.empty()) return;
    writer = std::make_unique<measure::RunWriter>(folder, true, train::metric_table(*task));
    observer = std::make_unique<train::RunObserver>(
        *writer, *task, train::RunObserverSettings{true, true, true, 0, -1, std::nullopt, 0});
    trainer =
        std::make_unique<train::Trainer>(train::LoopParts{*task, *loader, nullptr, nullptr, observer.get(), nullptr},
                                         train::make_loop_settings(*job, *task, *loader));
  }
  task::Registry registry;
  std::unique_ptr<train::Job> job;
  std::unique_ptr<task::Task> task;
  std::unique_ptr<data::Loader> loader;
  std::unique_ptr<measure::RunWriter> writer;
  std::unique_ptr<train::RunObserver> observer;
  std::unique_ptr<train::Trainer> trainer;
};

inline std::filesystem::path scratch() {
  std::string name = (std::filesystem::temp_directory_path() / "redline_bench_XXXXXX").string();
  return mkdtemp(name.data());
}

}  // namespace redline::bench
