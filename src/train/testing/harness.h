// Jobs of the example task for tests: settings as overrides, loops that can be stepped, weights that can be compared.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "train/job.h"
#include "train/loop/trainer.h"
#include "train/testing/example_task.h"

namespace redline::train::testing {

const task::Registry& registry();  // knows "curve", and "fragile" (see below)

// A small job with `overrides` on top.
std::unique_ptr<Job> make_job(const std::vector<std::string>& overrides = {});

struct Collected : LoopObserver {
  void step(const measure::StepRow& row) override { rows.push_back(row); }
  void log(const LogValues& values) override { logs.push_back(values); }
  void validated(const LogValues& values) override { validations.push_back(values); }
  void event(const std::string& kind, const measure::FieldList& fields) override {
    events.push_back({"", kind, fields});
    if (on_event) on_event(kind);
  }
  std::function<void(const std::string& kind)> on_event;
  int64_t count(const std::string& kind) const;
  std::string text(const std::string& kind, const std::string& field) const;  // of the last such event

  std::vector<measure::StepRow> rows;
  std::vector<LogValues> logs, validations;
  std::vector<measure::Event> events;
};

// A loop on a job, ready to step.
struct Loop {
  explicit Loop(const std::vector<std::string>& overrides = {}, CheckpointStore* store = nullptr);
  std::map<std::string, torch::Tensor> weights() const;  // copies

  std::unique_ptr<Job> job;
  std::unique_ptr<task::Task> task;
  std::unique_ptr<data::Loader> train, validation;
  Collected seen;
  std::unique_ptr<Trainer> trainer;
};

// Largest difference over the largest magnitude of `a`.
double difference(const std::map<std::string, torch::Tensor>& a, const std::map<std::string, torch::Tensor>& b);
bool bit_equal(const std::map<std::string, torch::Tensor>& a, const std::map<std::string, torch::Tensor>& b);

// What the "fragile" task (the example with ways to break) does; reset by each Loop.
struct Fragile {
  bool zero_weight = false, detached = false, always_nan = false, batch_norm = false;
  // An activation is not a number while autocast is on, at these steps.
  std::vector<int64_t> mixed_nan_steps;
  bool wrong_shape = false;
  std::function<std::unique_ptr<task::Monitor>()> make_monitor;
};
Fragile& fragile();

// A folder that is removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace redline::train::testing
