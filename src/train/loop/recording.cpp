#include "train/loop/recording.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>

#include "core/log.h"
#include "core/strings.h"
#include "core/time.h"
#include "device/low_products.h"
#include "device/memory.h"
#include "device/process_memory.h"

namespace redline::train {

namespace {

constexpr int64_t kRssEveryNs = 10'000'000;
constexpr double kCpuShare = 0.0005;  // of the steps' time, for reading the thread's processor time
// Timelines that are kept: those of the first steps of a process but for its very first, then one now and then.
constexpr int64_t kFirstTimelines = 64, kTimelineEvery = 64, kUnsteadySteps = 3;

constexpr double kLeastShown = 0.01;  // of forward and backward
constexpr size_t kMostShown = 5;

// "convolution_backward 12 %, mm 3 %": what LibTorch's operators and our kernels' products took in float, most first.
std::string fp32_operators(const std::vector<OperatorTime>& times, double own_products, double whole) {
  std::vector<std::pair<double, std::string>> found;
  if (own_products > 0) found.emplace_back(own_products, "products of redline's kernels");
  for (const OperatorTime& time : times)
    if (time.dtype == torch::kFloat32) found.emplace_back(time.self_seconds, operator_words(time.name));
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> words;
  for (const auto& [seconds, name] : found)
    if (words.size() < kMostShown && seconds >= kLeastShown * whole)
      words.push_back(fmt::format("{} {:.0f} %", name, 100 * seconds / whole));
  return join(words, ", ");
}

}  // namespace

Recording::Recording(const LoopParts& parts, const LoopSettings& settings, TrainingState& state,
                     measure::StepClock& clock)
    : parts_(parts),
      settings_(settings),
      state_(state),
      clock_(clock),
      drift_(settings.drift_ratio > 0 ? settings.drift_ratio : 1e9) {}

void Recording::start() {
  if (settings_.process_bytes > 0) memory_watch_.emplace(device::memory::limit(), settings_.process_bytes);
  if (state_.at.step > 0) next_flags_ = measure::kStepAfterResume;
  state_.window.start_clock({now_ns(), process_cpu_ns(), {}, parts_.train.stats()});
  stages_seen_ = parts_.train.stats().stages.ns;
  surroundings_.start();
  if (const std::string unseen = surroundings_.unseen(); !unseen.empty())
    parts_.event(measure::kUnseenEvent, {{"what", unseen}});
  if (settings_.precision != Precision::Fp32 && settings_.device.is_cpu()) timed_step_ = state_.at.step + 2;
}

void Recording::begin_step() {
  if (state_.at.step != timed_step_) return;
  timer_.emplace();
  device::low_products::start();
}

// "Check that half precision is really on", "make sure operations support it": what share of forward and backward ran
// in it, and which operators did not. LibTorch's operators run one after another; products inside our own are counted
// by thread. What else our kernels do (statistics, softmax, draws) is float by design and has no name here.
void Recording::end_compute(Precision precision) {
  if (!timer_) return;
  const std::vector<OperatorTime> times = timer_->times();
  timer_.reset();
  const device::low_products::Spent own = device::low_products::stop();
  const double threads = std::max(1, at::get_num_threads());
  if (precision == Precision::Fp32) return;
  const torch::ScalarType type = precision == Precision::Fp16Mixed ? torch::kFloat16 : torch::kBFloat16;
  const double low = own.low / threads + dtype_seconds(times, type);
  double all = 0;
  for (const measure::Phase phase : {measure::Phase::Forward, measure::Phase::Backward})
    all += static_cast<double>(clock_.times()[static_cast<size_t>(phase)]) * 1e-9;
  const double whole = std::max({all, low, 1e-9}), share = low / whole;
  const std::string fallen = fp32_operators(times, own.floats / threads, whole);
  parts_.event("precision", {{"step", state_.at.step},
                             {"precision", std::string(precision_name(precision))},
                             {"share", share},
                             {"in_fp32", fallen}});
  log_info(fmt::format("Precision {} is in force: {:.0f} % of the time of forward and backward runs in {}.{}",
                       precision_name(precision), 100 * share, number_name(precision),
                       fallen.empty() ? "" : " In fp32: " + fallen + "."));
}

void Recording::log(const StepVerdict& step, const CadencePosition& position) {
  const measure::PhaseScope scope(clock_, measure::Phase::Log);
  const LogWindow::Now now{now_ns(), process_cpu_ns(), clock_.times(), parts_.train.stats()};
  LogValues values{state_.at.step, state_.window.values(now)};
  auto& m = values.metrics;
  m["learning_rate"] = step.learning_rate;
  m["grad_norm"] = step.grad_norm;
  if (state_.scaler.enabled()) m["loss_scale"] = state_.scaler.scale();
  m["epoch"] = static_cast<double>(position.epoch) +
               static_cast<double>(position.step_in_epoch) / static_cast<double>(position.steps_per_epoch);
  const auto memory = device::memory::stats();
  m["memory_live_bytes"] = static_cast<double>(memory.live_bytes);
  m["memory_peak_bytes"] = static_cast<double>(memory.step_peak_bytes);
  m["rss_bytes"] = static_cast<double>(device::process_rss_bytes());
  m["skipped_steps"] = static_cast<double>(state_.at.skipped_steps);
  m["guard_actions"] = static_cast<double>(state_.at.guard_actions);
  m["bad_samples"] = static_cast<double>(now.loader.bad_samples);
  if (const int64_t looked_up = now.loader.cache_hits + now.loader.cache_misses; looked_up > 0)
    m["cache_hit_share"] = static_cast<double>(now.loader.cache_hits) / static_cast<double>(looked_up);
  if (const auto rate = m.find("samples_per_second"); rate != m.end() && settings_.fp32_gflops > 0)
    m["flops_share"] = parts_.task.flops_per_sample(state_.window.items_per_sample() / settings_.items_per_length) *
                       rate->second / (settings_.fp32_gflops * 1e9);
  if (parts_.store != nullptr && parts_.store->last_stall_seconds() > 0)
    m["checkpoint_seconds"] = parts_.store->last_stall_seconds();
  if (const auto drift = drift_.drift()) m["step_time_drift"] = *drift;
  if (exchanged_steps_ > 0) {
    const double steps = 1e9 * static_cast<double>(std::exchange(exchanged_steps_, 0));
    m["reduce_exposed_seconds"] = static_cast<double>(std::exchange(exposed_ns_, 0)) / steps;
    m["reduce_overlapped_seconds"] = static_cast<double>(std::exchange(overlapped_ns_, 0)) / steps;
  }
  parts_.observer->log(values);
  state_.window.reset(now);
}

void Recording::exchanged(std::optional<measure::ReduceTimeline> timeline) {
  timeline_.reset();
  if (!timeline) return;
  ++exchanged_steps_;
  exposed_ns_ += timeline->exposed_ns();
  overlapped_ns_ += timeline->overlapped_ns();
  if (const int64_t n = timelines_++; n < kUnsteadySteps || (n >= kFirstTimelines && n % kTimelineEvery != 0)) return;
  timeline_ = std::move(timeline);
}

void Recording::write_timeline(const measure::StepRow& row) {
  if (!timeline_) return;
  timeline_->step = row.step;
  int64_t others = timeline_->exposed_ns() + timeline_->exchange_ns + timeline_->layer_sum_ns;
  using measure::Phase;
  for (const Phase phase : {Phase::Log, Phase::Monitor, Phase::Validate, Phase::Checkpoint})
    others += row.phase_ns[static_cast<size_t>(phase)];
  timeline_->own_ns = std::max<int64_t>(0, row.wall_ns - others);
  parts_.event(measure::kReduceTimelineEvent, measure::timeline_fields(*timeline_));
  timeline_.reset();
}

void Recording::row(const StepVerdict& step) {
  const auto memory = device::memory::stats();
  measure::StepRow row;
  row.phase_ns = clock_.end_step();
  row.wall_ns = clock_.wall_ns();
  row.begin_ns = clock_.begin_ns();
  row.step = state_.at.step;
  row.epoch = state_.at.step_in_epoch == 0 ? state_.at.epoch - 1 : state_.at.epoch;
  row.stage_ns = parts_.train.stats().stages.ns;
  for (size_t i = 0; i < row.stage_ns.size(); ++i) {
    const int64_t total = row.stage_ns[i];
    row.stage_ns[i] = total - stages_seen_[i];
    stages_seen_[i] = total;
  }
  row.samples = static_cast<int32_t>(step.samples);
  row.micro_batches = static_cast<int32_t>(step.pieces);
  row.items = step.items;
  row.padded_items = step.padded_items;
  row.live_bytes = memory.live_bytes;
  row.peak_bytes = memory.step_peak_bytes;
  // Asking the kernel takes microseconds, which a step of one millisecond would feel.
  if (const int64_t now = row.begin_ns + row.wall_ns; now - rss_read_ns_ >= kRssEveryNs) {
    rss_bytes_ = device::process_rss_bytes();
    rss_read_ns_ = now;
  }
  row.rss_bytes = rss_bytes_;
  row.loss = step.loss();
  row.learning_rate = step.learning_rate;
  row.grad_norm = step.grad_norm;
  row.flags = step.flags | next_flags_;
  if (!clock_.timed()) row.flags |= measure::kStepUntimed;
  next_flags_ = 0;
  state_.window.add_phases(row.phase_ns);
  const double seconds = static_cast<double>(row.wall_ns) * 1e-9;
  step_seconds_ = step_seconds_ > 0 ? 0.9 * step_seconds_ + 0.1 * seconds : seconds;
  if (clock_.timed()) {
    const double step_ns = 1e9 * step_seconds_;
    clock_.sample_every(measure::sampling_interval(clock_.scopes(), measure::calibrate_scope_ns(), step_ns));
    clock_.sample_cpu_every(
        measure::sampling_interval(clock_.scopes(), 2 * measure::calibrate_cpu_ns(), step_ns, kCpuShare));
  }
  if (const measure::PhaseTimes* const cpu = clock_.cpu()) surroundings_.add(row.phase_ns, *cpu, row.wall_ns);
  parts_.observer->step(row);
  write_timeline(row);
  if (clock_.timed()) check_drift(row);
  check_memory(row);
  if (const auto window = surroundings_.after_step(row.step, row.begin_ns + row.wall_ns))
    parts_.event(measure::kSurroundingsEvent, measure::surroundings_fields(*window));
}

void Recording::check_memory(const measure::StepRow& row) {
  if (!memory_watch_) return;
  const auto limit = memory_watch_->update(row.rss_bytes, row.peak_bytes);
  if (!limit) return;
  device::memory::set_limit(*limit);
  parts_.event(
      "guard.memory_limit",
      {{"step", row.step}, {"limit_bytes", *limit}, {"rss_bytes", row.rss_bytes}, {"peak_bytes", row.peak_bytes}});
  log_warning_once(fmt::format(
      "The process holds {} that are not tensors, more than the reserve for them: tensors may now take {}. Lower "
      "max_buffer_bytes, prefetch_factor or num_workers if steps become too small.",
      format_bytes(static_cast<uint64_t>(std::max<int64_t>(0, row.rss_bytes - row.peak_bytes))),
      format_bytes(static_cast<uint64_t>(*limit))));
}

void Recording::check_drift(const measure::StepRow& row) {
  const auto drift = drift_.add(row);
  if (!drift) return;
  parts_.event("drift", {{"step", row.step},
                         {"ratio", drift->ratio},
                         {"phase", std::string(measure::phase_name(drift->phase))},
                         {"phase_seconds_before", drift->phase_start_seconds},
                         {"phase_seconds_now", drift->phase_now_seconds}});
  log_warning(
      fmt::format("Steps now take {:.2f} times as long per sample as at the start ({} against {}); what grew most is "
                  "{} ({} to {}).",
                  drift->ratio, format_seconds(drift->now_seconds), format_seconds(drift->start_seconds),
                  measure::phase_name(drift->phase), format_seconds(drift->phase_start_seconds),
                  format_seconds(drift->phase_now_seconds)));
}

}  // namespace redline::train
