// Writes what a loop says into a run directory: step rows, metrics, events, TensorBoard, CSV, and the progress line.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "measure/csv.h"
#include "measure/kept_writes.h"
#include "measure/progress.h"
#include "measure/run_record.h"
#include "measure/spans.h"
#include "measure/step_clock.h"
#include "measure/tfevents.h"
#include "measure/trace.h"
#include "task/task.h"
#include "train/checkpoint/sample_log.h"
#include "train/loop/cadence.h"
#include "train/loop/observer.h"
#include "train/run/followers.h"

namespace redline::train {

struct RunObserverSettings {
  bool tensorboard = true, csv = true, progress = true;
  int64_t histograms_every_n_steps = 0;
  int64_t resume_step = -1;  // -1: a new run
  std::optional<measure::StepRange> trace;
  int64_t total_steps = 0;  // for percentage and time left; 0 = unknown
  bool announce = true;     // a log line per validation
};

class RunObserver : public LoopObserver {
 public:
  RunObserver(measure::RunWriter& writer, task::Task& task, const RunObserverSettings& settings);
  ~RunObserver() override;
  // The clock whose phases a trace shows.
  void watch(measure::StepClock& clock) { clock_ = &clock; }
  // The job's resolved config, for TensorBoard's text page.
  void config(const std::string& yaml);
  // Told of every validation.
  void tell(Followers& followers) { followers_ = &followers; }

  void step(const measure::StepRow& row) override;
  bool wants_samples() const override { return sample_log_ != nullptr; }
  void samples(int64_t step, int64_t epoch, const std::vector<int64_t>& ids) override {
    sample_log_->step(step, epoch, ids);
  }
  void before_save() override;
  void log(const LogValues& values) override;
  void validated(const LogValues& values) override;
  void monitored(const LogValues& values, const std::vector<std::string>& plots) override;
  void event(const std::string& kind, const measure::FieldList& fields) override;
  void finish();  // ends the progress line, flushes

 private:
  void metrics(const LogValues& values);
  void histograms(int64_t step);
  void flush();
  void trace_step(int64_t finished_step);
  void draw(const measure::StepRow& row);

  measure::RunWriter& writer_;
  task::Task& task_;
  RunObserverSettings settings_;
  std::unique_ptr<measure::EventFile> tensorboard_;
  std::unique_ptr<measure::CsvFile> csv_;
  std::unique_ptr<measure::ProgressLine> progress_;
  std::unique_ptr<SampleLog> sample_log_;
  measure::ProgressState state_;
  measure::StepClock* clock_ = nullptr;
  Followers* followers_ = nullptr;
  measure::SpanLog spans_;
  measure::KeptWrites trace_;
  bool tracing_ = false;
  double seconds_ = 0, samples_ = 0, wait_ = 0;  // smoothed, per step
};

// The names a run of this task may log.
measure::MetricTable metric_table(const task::Task& task);

}  // namespace redline::train
