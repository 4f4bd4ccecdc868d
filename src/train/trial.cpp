#include "train/trial.h"

#include <fmt/format.h>

#include "core/own_folder.h"
#include "core/time.h"
#include "device/memory.h"
#include "device/threads.h"
#include "train/run/run_observer.h"
#include "train/run/trial_loop.h"
#include "train/training_run.h"

namespace redline::train {

namespace {

class CollectingObserver : public LoopObserver {
 public:
  void step(const measure::StepRow& row) override {
    rows.push_back(row);
    if (next != nullptr) next->step(row);
  }
  void log(const LogValues& values) override {
    if (next != nullptr) next->log(values);
  }
  void validated(const LogValues& values) override {
    if (next != nullptr) next->validated(values);
  }
  void monitored(const LogValues& values, const std::vector<std::string>& found,
                 const std::vector<std::string>& plots) override {
    if (next != nullptr) next->monitored(values, found, plots);
  }
  void event(const std::string& kind, const measure::FieldList& fields) override {
    events.push_back({"", kind, fields});
  }

  std::vector<measure::StepRow> rows;
  std::vector<measure::Event> events;
  LoopObserver* next = nullptr;
};

}  // namespace

struct Trial::Impl {
  std::optional<OwnFolder> own_scratch;  // declared first: everything that writes there is gone before it
  std::filesystem::path scratch;
  std::unique_ptr<Job> job;
  std::unique_ptr<task::Task> task;
  std::unique_ptr<data::Loader> train, validation;
  std::unique_ptr<measure::RunWriter> writer;
  std::unique_ptr<RunObserver> recorder;
  std::unique_ptr<CheckpointStore> store;
  CollectingObserver observer;
  std::unique_ptr<device::CopyStream> stream;
  std::unique_ptr<TrialLoop> trainer;
  TrialOptions options;
  int records = 0;
  NoiseWatch noise;

  // A record of its own for every stretch of steps: after load() the steps begin again.
  void open_record() {
    const bool listening = observer.next != nullptr || records == 0;
    recorder.reset();
    writer.reset();
    writer = std::make_unique<measure::RunWriter>(scratch / fmt::format("run{}", records++), /*resume=*/true,
                                                  metric_table(*task));
    const ExpManagerConfig& exp = job->exp_manager();
    RunObserverSettings settings{exp.create_tensorboard_logger,
                                 exp.create_csv_logger,
                                 /*progress=*/false,
                                 exp.histograms_every_n_steps,
                                 -1,
                                 std::nullopt,
                                 0};
    settings.announce = false;
    recorder = std::make_unique<RunObserver>(*writer, *task, settings);
    observer.next = listening ? recorder.get() : nullptr;
  }

  void forget_checkpoints() { store->forget(); }

  ~Impl() {
    trainer.reset();
    recorder.reset();
    store.reset();
    writer.reset();
  }
};

Trial::Trial(const task::Registry& registry, const config::RequestSource& source, const MachineFacts& machine,
             const TrialOptions& options)
    : impl_(std::make_unique<Impl>()) {
  Impl& m = *impl_;
  m.options = options;
  m.job = Job::read(registry, source, machine);
  prepare_process(*m.job);
  m.task = m.job->build_task();
  if (options.hold_out > 0) {
    auto [train, held_out] = m.job->build_split_loaders(*m.task, options.hold_out);
    m.train = std::move(train);
    m.validation = std::move(held_out);
  } else {
    m.train = m.job->build_loader(*m.task, Job::Part::Train, {});
    if (options.validate) m.validation = m.job->build_loader(*m.task, Job::Part::Validation, {});
  }
  LoopSettings settings = make_loop_settings(*m.job, *m.task, *m.train);
  settings.monitor = options.monitor;
  settings.sanity_batches = 0;
  settings.drift_ratio = 0;
  settings.early_stopping.reset();
  if (!options.guards) {
    settings.guards.check_weights = false;
    settings.guards.snapshot_every_n_steps = 0;
  }
  const bool writes = options.log || options.monitor || options.checkpoint;
  if (writes) {
    if (options.scratch.empty()) m.own_scratch.emplace(OwnFolder::temporary("trial"));
    m.scratch = m.own_scratch ? m.own_scratch->path() : options.scratch;
    settings.plot_directory = (m.scratch / "plots").string();
  }
  if (options.log) m.open_record();
  if (options.checkpoint && m.job->exp_manager().create_checkpoint_callback)
    m.store =
        std::make_unique<CheckpointStore>(m.scratch / "checkpoints", m.job->exp_manager().checkpoint_callback_params);
  m.stream = std::make_unique<device::CopyStream>(settings.device.str());
  m.trainer = std::make_unique<TrialLoop>(
      LoopParts{*m.task, *m.train, m.validation.get(), m.store.get(), &m.observer, m.stream.get()}, settings);
}

void Trial::vary(const TrialOptions& options) {
  Impl& m = *impl_;
  m.options.free_loader = options.free_loader;
  m.options.loader_only = options.loader_only;
  m.observer.next = options.log ? m.recorder.get() : nullptr;
  m.trainer->leave_out({!options.log, !options.validate, !options.monitor, !options.checkpoint});
}

Trial::~Trial() = default;

TrialResult Trial::run(int64_t steps) {
  Impl& m = *impl_;
  // Another trial may have set its own since: threads and limits belong to the process.
  device::set_intra_op_threads(static_cast<int>(m.job->trainer().intra_op_threads.value()));
  m.observer.rows.clear();
  m.observer.events.clear();
  if (m.options.free_loader) m.trainer->take_ahead(steps);
  const int64_t wall = now_ns(), cpu = process_cpu_ns();
  if (m.options.loader_only)
    m.trainer->run_loader(steps);
  else
    m.trainer->run_steps(steps);
  TrialResult result{std::move(m.observer.rows), std::move(m.observer.events), 0, 0};
  const double seconds = seconds_between(wall, now_ns());
  if (seconds > 0) result.cores_used = static_cast<double>(process_cpu_ns() - cpu) * 1e-9 / seconds;
  for (const measure::StepRow& row : result.rows) result.peak_bytes = std::max(result.peak_bytes, row.peak_bytes);
  return result;
}

std::vector<OperatorTime> Trial::run_operators() {
  device::set_intra_op_threads(static_cast<int>(impl_->job->trainer().intra_op_threads.value()));
  const OperatorTimer timer;
  impl_->trainer->run_steps(1);
  return timer.times();
}

namespace {

template <class Once>
std::optional<double> time_once(const Once& once) {
  const int64_t begin = now_ns();
  if (!once()) return std::nullopt;
  return seconds_between(begin, now_ns());
}

}  // namespace

std::optional<double> Trial::time_validation() {
  return time_once([&] { return impl_->trainer->validate_once(); });
}
std::optional<double> Trial::time_monitor() {
  return time_once([&] { return impl_->trainer->monitor_once(); });
}
std::optional<double> Trial::time_checkpoint() {
  const auto waited = time_once([&] { return impl_->trainer->save_once(); });
  if (!waited) return std::nullopt;
  impl_->store->wait();
  const bool beside = impl_->job->exp_manager().checkpoint_callback_params.async;
  return *waited + (beside ? impl_->store->last_write_cpu_seconds() : 0);
}

std::map<std::string, double> Trial::evaluate(Precision precision, int64_t most_batches) {
  device::set_intra_op_threads(static_cast<int>(impl_->job->trainer().intra_op_threads.value()));
  return impl_->trainer->evaluate(precision, most_batches);
}
int64_t Trial::validation_batches() const { return impl_->validation ? impl_->validation->steps_per_epoch() : 0; }

void Trial::watch_noise() { impl_->trainer->watch_noise(&impl_->noise); }
std::vector<NoiseWatch::Step> Trial::take_noise() { return impl_->noise.take(); }

int64_t Trial::longest_batch_peak_bytes() {
  impl_->trainer->refresh_copy();
  const int64_t peak = longest_batch_peak(*impl_->job, *impl_->task);
  impl_->task->module().zero_grad(/*set_to_none=*/true);
  return peak;
}

CheckpointState Trial::state() const {
  ReplayCopy copy;
  copy.take(impl_->trainer->state(), 0);
  return copy.state();
}

void Trial::load(const CheckpointState& state) {
  impl_->trainer->load(state);
  if (impl_->writer) impl_->open_record();
  if (impl_->store) impl_->forget_checkpoints();
}

Trial::Place Trial::place() const {
  const LoopState& now = impl_->trainer->position();
  return {now.epoch, now.step_in_epoch};
}
void Trial::go_to(const Place& place) { impl_->trainer->go_to(place.epoch, place.step); }

const Job& Trial::job() const { return *impl_->job; }
task::Task& Trial::task() { return *impl_->task; }
int64_t Trial::steps_per_epoch() const { return impl_->trainer->steps_per_epoch(); }
const LoopSettings& Trial::settings() const { return impl_->trainer->settings(); }
data::LoaderStats Trial::loader_stats() const { return impl_->train->stats(); }

}  // namespace redline::train
