#include "train/run/run_observer.h"

#include <fmt/format.h>

#include <chrono>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/log.h"
#include "core/strings.h"
#include "core/time.h"
#include "train/run/rescue.h"

namespace redline::train {

namespace {

// To the millisecond, so that the text stays short.
double unix_seconds() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(since).count()) / 1000.0;
}

}  // namespace

measure::MetricTable metric_table(const task::Task& task) {
  measure::MetricTable table = measure::standard_metrics();
  for (const task::MetricInfo& metric : task.metrics())
    if (table.find(metric.name) == nullptr)
      table.add({metric.name, measure::MetricType::Mean, metric.unit, metric.sentence});
  return table;
}

RunObserver::RunObserver(measure::RunWriter& writer, task::Task& task, const RunObserverSettings& settings)
    : writer_(writer), task_(task), settings_(settings) {
  if (settings.tensorboard)
    tensorboard_ = std::make_unique<measure::EventFile>(writer.directory() / "tensorboard", settings.resume_step);
  if (settings.csv) csv_ = std::make_unique<measure::CsvFile>(writer.directory() / "metrics.csv", settings.resume_step);
  if (settings.progress) progress_ = std::make_unique<measure::ProgressLine>();
  if (sample_log_wanted()) sample_log_ = std::make_unique<SampleLog>(writer.directory());
  state_.total = settings.total_steps;
}

RunObserver::~RunObserver() = default;

void RunObserver::config(const std::string& yaml) {
  if (tensorboard_)
    tensorboard_->text(std::max<int64_t>(0, settings_.resume_step), "config", "```yaml\n" + yaml + "```\n");
}

void RunObserver::metrics(const LogValues& values) {
  require_in_place(writer_.lock(), writer_.directory());
  std::map<std::string, double> timed = values.metrics;
  if (!timed.empty()) timed["wall_time"] = unix_seconds();
  writer_.metrics(values.step, timed);
  if (tensorboard_) tensorboard_->scalars(values.step, values.metrics);  // whose lines have a time of their own
  if (csv_) csv_->row(values.step, timed);
}

void RunObserver::histograms(int64_t step) {
  for (const auto& item : task_.module().named_parameters()) {
    const torch::Tensor values = item.value().detach().to(torch::kCPU, torch::kFloat32).contiguous();
    tensorboard_->histogram(
        step, "weights/" + item.key(),
        measure::make_histogram({values.const_data_ptr<float>(), static_cast<size_t>(values.numel())}));
  }
}

void RunObserver::log(const LogValues& values) {
  metrics(values);
  if (tensorboard_ && settings_.histograms_every_n_steps > 0 && values.step % settings_.histograms_every_n_steps == 0)
    histograms(values.step);
  flush();
}

void RunObserver::flush() {
  writer_.flush();
  if (tensorboard_) tensorboard_->flush();
  if (csv_) csv_->flush();
  trace_.retry();
}

void RunObserver::validated(const LogValues& values) {
  metrics(values);
  std::string text;
  for (const auto& [name, value] : values.metrics)
    if (starts_with(name, "val_")) text += fmt::format("{}{} {:.5g}", text.empty() ? "" : ", ", name, value);
  if (settings_.announce) log_info(fmt::format("step {}: {}", values.step, text));
  flush();
  if (followers_ != nullptr) followers_->validated(values.step, values.metrics);
}

void RunObserver::monitored(const LogValues& values, const std::vector<std::string>& plots) {
  metrics(values);
  for (const std::string& path : plots) {
    writer_.event("monitor.plot", {{"step", values.step}, {"path", path}});
    if (!tensorboard_ || !ends_with(path, ".png")) continue;
    try {
      tensorboard_->image(values.step, std::filesystem::path(path).stem().string(), read_file(path, size_t{64} << 20));
    } catch (const DiskError& error) {
      log_warning_once(fmt::format("A plot is missing in TensorBoard: {}", error.what()));
    }
  }
}

void RunObserver::before_save() {
  require_in_place(writer_.lock(), writer_.directory());
  if (sample_log_) sample_log_->flush();
  flush();
}

void RunObserver::event(const std::string& kind, const measure::FieldList& fields) { writer_.event(kind, fields); }

void RunObserver::trace_step(int64_t finished_step) {
  if (!settings_.trace || clock_ == nullptr) return;
  const bool next = settings_.trace->contains(finished_step + 1);
  if (next) {
    spans_.begin_step(finished_step + 1);
    clock_->trace_to(&spans_);
  } else if (tracing_) {
    clock_->trace_to(nullptr);
    const std::filesystem::path path = writer_.directory() / "trace.json";
    const std::vector<measure::Span> spans = spans_.take();
    trace_.put(static_cast<int64_t>(spans.size() * sizeof(measure::Span)),
               [path, range = *settings_.trace, spans, dropped = spans_.dropped()] {
                 measure::write_chrome_trace(path, spans, dropped);
                 log_info(fmt::format("The trace of steps {} to {} is in {} (open it in chrome://tracing or Perfetto).",
                                      range.first, range.last, path.string()));
               });
  }
  tracing_ = next;
}

void RunObserver::draw(const measure::StepRow& row) {
  const double seconds = static_cast<double>(row.wall_ns) * 1e-9;
  const double keep = seconds_ > 0 ? 0.95 : 0.0;
  seconds_ = keep * seconds_ + (1 - keep) * seconds;
  samples_ = keep * samples_ + (1 - keep) * row.samples;
  wait_ =
      keep * wait_ + (1 - keep) * static_cast<double>(row.phase_ns[static_cast<size_t>(measure::Phase::Wait)]) * 1e-9;
  state_.done = row.step;
  if (state_.total > 0)
    state_.seconds_left = seconds_ * static_cast<double>(std::max<int64_t>(0, state_.total - row.step));
  state_.samples_per_second = samples_ / seconds_;
  state_.steps_per_second = 1.0 / seconds_;
  state_.loss = row.loss;
  state_.data_wait_share = wait_ / seconds_;
  state_.process_bytes = static_cast<uint64_t>(row.rss_bytes);
  progress_->update(state_, row.begin_ns + row.wall_ns);
}

void RunObserver::step(const measure::StepRow& row) {
  writer_.step(row);
  trace_step(row.step);
  if (progress_) draw(row);
}

void RunObserver::finish() {
  if (tracing_) trace_step(settings_.trace->last);
  state_.seconds_left.reset();  // nothing is left, or it is not known when the rest will be done
  if (progress_) progress_->finish(state_);
  flush();
}

}  // namespace redline::train
