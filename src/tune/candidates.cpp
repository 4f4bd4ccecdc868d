#include "tune/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/strings.h"
#include "device/machine.h"
#include "doctor/predict.h"
#include "tune/companions.h"

namespace redline::tune {

using config::Effect;
using measure::Phase;

namespace {

constexpr const char* kBucketing = "model.train_ds.use_bucketing";
constexpr const char* kBuckets = "model.train_ds.num_buckets";
constexpr const char* kPrecision = "trainer.precision";
constexpr const char* kFull = "32-true";  // weights are taken as they are
constexpr const char* kWorkers = "model.train_ds.num_workers";
constexpr const char* kNeedsOptimisation = "it changes the optimisation; --allow optimisation lets it be tried";
constexpr const char* kNeedsOrder = "it changes the order of samples; --allow order lets it be tried";
constexpr const char* kNeedsNumerics = "it changes the precision; --allow numerics lets it be tried";

Setting batch_of(int64_t batch, int64_t accumulate) {
  return {{kBatchPath, std::to_string(batch)},
          {kMicroPath, std::to_string(batch)},
          {kAccumulatePath, std::to_string(accumulate)}};
}

double rate_of(const MachineFacts& machine, const std::string& precision) {
  if (precision == "bf16-mixed") return machine.gemm_bf16_gflops;
  if (precision == "16-mixed") return machine.gemm_fp16_gflops;
  return machine.gemm_fp32_gflops;
}

bool has_units(const MachineFacts& machine, const std::string& precision) {
  if (precision == "bf16-mixed") return device::has_bf16_units(machine);
  if (precision == "16-mixed") return device::has_fp16_units(machine);
  return true;
}

Setting precision_of(const std::string& precision) {
  return {{kPrecision, precision}, {"trainer.precision_strict", "true"}};
}

double thread_seconds(double seconds, double parallel, int from, int to) {
  const auto share = [&](int threads) { return 1 - parallel + parallel / threads; };
  return seconds * share(std::max(1, to)) / share(std::max(1, from));
}

class Maker {
 public:
  Maker(const JobView& job, const Observed& observed, const MachineFacts& machine, const Allow& allow,
        const PlanModel& plans)
      : job_(job), o_(observed), machine_(machine), allow_(allow), plans_(plans) {
    wait_ = o_.seen.phase(Phase::Wait).seconds_per_step;
    loader_ = o_.seen.loader_worker_seconds();
    step_ = plans_.step_seconds();
  }

  std::vector<Candidate> run() {
    add_batches();
    add_workers_and_threads();
    add_buckets();
    add_padding();
    add_precision();
    add_loader_options();
    add_decoding();
    add_toggles();
    add_what_cannot_be_shown();
    std::erase_if(out_, [&](const Candidate& c) {
      return std::any_of(c.values.begin(), c.values.end(),
                         [&](const auto& value) { return job_.pinned.count(value.first) != 0; });
    });
    for (Candidate& c : out_) {
      c.late = c.late || c.predicted_gain < -0.2;
      c.shapes_plan = c.group == "batch" || c.group == "buckets" || c.group == "padding" ||
                      (c.group == "precision" && plans_.knows_precision(c.to));
    }
    return std::move(out_);
  }

 private:
  void add(Candidate candidate) {
    candidate.name = fmt::format("{} {} -> {}", candidate.field, candidate.from, candidate.to);
    out_.push_back(std::move(candidate));
  }

  void add_batches() {
    if (job_.bounded_by_length) {
      Candidate c{"", {}, 0, 1e9, Effect::Optimisation, "batch", "batch_size", "by length", "fixed"};
      c.not_tried = "batches are bounded by their length (batch_duration, batch_tokens), and so are micro-batches";
      return add(std::move(c));
    }
    const int64_t effective = job_.effective_batch();
    if (!job_.batch_statistics) {
      // A step is split as one likes: the result is the same but for rounding.
      const int64_t now = std::min(effective, job_.micro_batch_size > 0 ? job_.micro_batch_size : job_.batch_size);
      for (int64_t micro = 1; micro < 2 * effective; micro *= 2) {
        const int64_t rows = std::min(micro, effective);
        if (rows == now || rows * 4 < now) continue;
        const Setting values = {{kMicroPath, std::to_string(rows)}};
        add({"", values, plans_.gain(values), 1e9, Effect::Numerics, "batch", "micro_batch_size", std::to_string(now),
             std::to_string(rows)});
      }
    } else {
      for (int64_t batch = 1; batch < 2 * effective; batch *= 2) {
        const int64_t rows = std::min(batch, effective);
        if (rows == job_.batch_size || effective % rows != 0 || rows * 4 < job_.batch_size) continue;
        add_rebatched(rows, effective / rows);
      }
    }
    // A step that is split anyway gains by larger pieces; a larger step saves only the optimiser's share.
    if (job_.accumulate > 1 && o_.seen.phase(Phase::Optimiser).share < 0.05) return;
    for (int64_t factor : {2, 4, 8}) {
      const int64_t batch = job_.batch_size * factor;
      if (batch * job_.accumulate > std::max<int64_t>(1, job_.samples / 8)) break;  // an epoch keeps some steps
      if (batch > 256) break;
      add_rebatched(batch, job_.accumulate);
    }
  }

  void add_rebatched(int64_t batch, int64_t accumulate) {
    const Setting values = batch_of(batch, accumulate);
    const auto text = [](int64_t b, int64_t a) { return a == 1 ? std::to_string(b) : fmt::format("{} x {}", b, a); };
    Candidate c{"",
                values,
                plans_.gain(values),
                1e9,
                Effect::Optimisation,
                "batch",
                "batch_size",
                text(job_.batch_size, job_.accumulate),
                text(batch, accumulate)};
    if (const auto typed = typed_companions(job_, values); !typed.empty())
      c.not_tried = fmt::format("it would change {}, which was typed and is kept", join(typed, ", "));
    if (!allow_.optimisation) c.not_tried = kNeedsOptimisation;
    add(std::move(c));
  }

  double worker_step_seconds(int workers, int threads) const {
    doctor::LoaderModel model;
    model.loader_seconds = loader_;
    model.compute_seconds = thread_seconds(std::max(1e-9, step_ - wait_), o_.parallel_share, job_.threads, threads);
    model.threads = threads;
    model.cores = std::max(1, machine_.allowed_cpus);
    model.accelerator = machine_.has_cuda;
    return doctor::predicted_step_seconds(model, workers);
  }

  void add_workers_and_threads() {
    const int cores = std::max(1, machine_.allowed_cpus);
    const double now = job_.workers == 0 ? step_ : worker_step_seconds(job_.workers, job_.threads);
    // Free loading can gain no more than what the step waits and what workers take from its cores.
    const double share = std::min(0.95, (wait_ + (job_.workers > 0 ? loader_ / cores : 0)) / step_);
    for (int threads : {cores, std::max(1, cores - 1), std::max(1, cores / 2), 1}) {
      for (int workers : {0, 1, 2, 4, 8, 16}) {
        if (workers > cores || (workers == job_.workers && threads == job_.threads)) continue;
        const Setting values = {{kWorkers, std::to_string(workers)}, {kThreadsPath, std::to_string(threads)}};
        if (std::any_of(out_.begin(), out_.end(), [&](const Candidate& c) { return c.values == values; })) continue;
        const bool same_threads = threads == job_.threads;
        Candidate c{"",
                    same_threads ? Setting{{kWorkers, std::to_string(workers)}} : values,
                    now / worker_step_seconds(workers, threads) - 1,
                    same_threads ? 1 / (1 - share) - 1 + 0.02 : 1e9,
                    same_threads ? Effect::Nothing : Effect::Numerics,
                    "workers",
                    same_threads ? "num_workers" : "num_workers x intra_op_threads",
                    same_threads ? std::to_string(job_.workers) : fmt::format("{} x {}", job_.workers, job_.threads),
                    same_threads ? std::to_string(workers) : fmt::format("{} x {}", workers, threads)};
        if (std::any_of(out_.begin(), out_.end(),
                        [&](const Candidate& other) { return other.field == c.field && other.to == c.to; }))
          continue;
        add(std::move(c));
      }
    }
    // A job without workers has nothing that could be ahead; with them, further ahead is one more thing to try.
    if (job_.workers > 0 || job_.prefetch >= 8) return;
    const int workers = std::min(2, cores);
    add({"",
         {{kWorkers, std::to_string(workers)}, {"model.train_ds.prefetch_factor", "8"}},
         now / worker_step_seconds(workers, job_.threads) - 1,
         1 / (1 - share) - 1 + 0.02,
         Effect::Nothing,
         "workers",
         "num_workers x prefetch_factor",
         fmt::format("0 x {}", job_.prefetch),
         fmt::format("{} x 8", workers)});
  }

  void add_buckets() {
    if (!job_.ragged || job_.bounded_by_length) return;
    const auto one = [&](bool on, int count) {
      Setting values = {{kBucketing, on ? "true" : "false"}};
      if (on) values[kBuckets] = std::to_string(count);
      Candidate c{"",
                  values,
                  plans_.gain(values),
                  1e9,
                  Effect::Order,
                  "buckets",
                  "num_buckets",
                  job_.buckets ? std::to_string(job_.num_buckets) : "off",
                  on ? std::to_string(count) : "off"};
      if (!allow_.order) c.not_tried = kNeedsOrder;
      add(std::move(c));
    };
    if (job_.buckets) one(false, 1);
    for (int count : {4, 8})
      if (!job_.buckets || count != job_.num_buckets) one(true, count);
  }

  void add_padding() {
    if (job_.dynamic_padding || !job_.ragged) return;
    const Setting values = {{"model.train_ds.use_dynamic_padding", "true"}};
    add({"", values, plans_.gain(values), 1e9, Effect::Numerics, "padding", "use_dynamic_padding", "false", "true"});
  }

  void add_precision() {
    const auto rate = [&](const std::string& precision) { return rate_of(machine_, precision); };
    for (const char* precision : {"32-true", "bf16-mixed", "16-mixed"}) {
      if (precision == job_.precision) continue;
      Candidate c{"",
                  precision_of(precision),
                  plans_.knows_precision(precision)
                      ? plans_.gain(precision_of(precision))
                      : doctor::predicted_precision_gain(o_.seen, rate(job_.precision), rate(precision)),
                  1e9,
                  Effect::Numerics,
                  "precision",
                  "precision",
                  job_.precision,
                  precision};
      // Faster products are not yet a faster step: without a race of it that is a hope, not a prediction.
      // The same where the machine was too busy to measure its rates; then its units say what is worth a race.
      const bool measured = rate(job_.precision) > 0;
      if (!plans_.knows_precision(precision) && (!measured || rate(precision) > rate(job_.precision))) {
        c.predicted_gain = 0;
        c.unpredicted = true;
      }
      if (!measured && !has_units(machine_, precision)) {
        c.not_tried = "this processor has no units for it";
      } else if (measured && rate(precision) <= 0) {
        c.not_tried = "LibTorch has no kernel for it here";
        c.not_measurable = true;
      } else if (rate(precision) < 0.1 * rate(job_.precision)) {
        c.not_tried =
            fmt::format("matrix products run at {:.0f} instead of {:.0f} GFLOP/s: a trial would last too long",
                        rate(precision), rate(job_.precision));
      } else if (!allow_.numerics) {
        c.not_tried = kNeedsNumerics;
      }
      add(std::move(c));
    }
  }

  void add_loader_options() {
    const double waits = std::min(0.95, wait_ / step_);
    for (int prefetch : {4, 8}) {
      if (job_.workers == 0 || prefetch <= job_.prefetch) continue;
      Candidate c{"",
                  {{"model.train_ds.prefetch_factor", std::to_string(prefetch)}},
                  0.0,
                  1 / (1 - waits) - 1,
                  Effect::Nothing,
                  "prefetch",
                  "prefetch_factor",
                  std::to_string(job_.prefetch),
                  std::to_string(prefetch)};
      add(std::move(c));
    }
    if (job_.has_cuda) add(the_other_way_round("model.train_ds.pin_memory", job_.pin_memory, Effect::Nothing));
    if (job_.cache != "memory") {
      const double saved = o_.seen.stage(measure::Stage::Read) + o_.seen.stage(measure::Stage::Decode);
      const double paid = job_.workers == 0 ? saved : 0.75 * saved / std::max(1, machine_.allowed_cpus);
      const double most = std::min(0.95, saved / step_);
      // The first epoch fills the cache: shorter trials than an epoch cannot show it.
      add({"",
           {{"model.train_ds.cache", "memory"}},
           1 / (1 - std::min(0.95, paid / step_)) - 1,
           1 / (1 - most) - 1,
           Effect::Nothing,
           "cache",
           "cache",
           job_.cache,
           "memory"});
    }
  }

  static Candidate the_other_way_round(const std::string& path, bool on, Effect effect) {
    const std::string field = path.substr(path.rfind('.') + 1), from = on ? "true" : "false",
                      to = on ? "false" : "true";
    return {"", {{path, to}}, 0.0, 1e9, effect, field, field, from, to};
  }

  void add_decoding() {
    if (!job_.images || job_.fast_decode) return;
    const double saved = 0.5 * o_.seen.stage(measure::Stage::Decode);  // about half of a JPEG is decoded for nothing
    const double share =
        std::min(0.95, (job_.workers == 0 ? saved : saved / std::max(1, machine_.allowed_cpus)) / step_);
    Candidate c{"",
                {{"model.train_ds.decode", "fast"}},
                1 / (1 - share) - 1,
                1e9,
                Effect::Numerics,
                "decode",
                "decode",
                "exact",
                "fast"};
    if (!allow_.numerics) c.not_tried = "it changes pixels by rounding; --allow numerics lets it be tried";
    add(std::move(c));
  }

  void add_toggles() {
    for (const Toggle& toggle : job_.toggles) {
      Candidate c = the_other_way_round(toggle.path, toggle.on, toggle.effect);
      c.unpredicted = true;
      c.late = toggle.on;  // what is on by default was put there for speed
      if (toggle.effect == Effect::Order && !allow_.order) c.not_tried = kNeedsOrder;
      if (toggle.effect >= Effect::Optimisation && !allow_.optimisation) c.not_tried = kNeedsOptimisation;
      add(std::move(c));
    }
  }

  void add_what_cannot_be_shown() {
    const auto absent = [&](const char* field, const char* from, const char* to, Effect effect, const char* why) {
      Candidate c{"", {}, 0, 1e9, effect, field, field, from, to};
      c.not_tried = why;
      c.not_measurable = true;
      c.name = field;
      out_.push_back(std::move(c));
    };
    if (!job_.has_cuda) absent("pin_memory", "false", "true", Effect::Nothing, "there is no device to copy to");
    if (!job_.tarred)
      absent("is_tarred", "false", "true", Effect::Order,
             "the data is not in tars; `redline data tar` makes them, and the gain needs a disk that seeks");
    if (job_.supports_channels_last)
      add(the_other_way_round("trainer.channels_last", job_.channels_last, Effect::Numerics));
    else
      absent("channels_last", "false", "true", Effect::Numerics, "the model has no images");
    absent("compile", "false", "true", Effect::Numerics, "this version has no compiled steps");
  }

  const JobView& job_;
  const Observed& o_;
  const MachineFacts& machine_;
  const Allow& allow_;
  const PlanModel& plans_;
  double wait_ = 0, loader_ = 0, step_ = 0;
  std::vector<Candidate> out_;
};

}  // namespace

bool has_rule(const std::string& option) {
  static const std::set<std::string> known = {"batch_size",
                                              "micro_batch_size",
                                              "accumulate_grad_batches",
                                              "num_workers",
                                              "intra_op_threads",
                                              "prefetch_factor",
                                              "pin_memory",
                                              "use_bucketing",
                                              "num_buckets",
                                              "use_dynamic_padding",
                                              "precision",
                                              "channels_last",
                                              "is_tarred",
                                              "cache",
                                              "decode",
                                              "compile",
                                              "update_frequency",
                                              "log_every_n_steps",
                                              "val_check_interval",
                                              "every_n_train_steps"};
  return known.contains(option);
}

Allow parse_allow(const std::string& text) {
  Allow allow;
  for (const std::string& raw : split(text, ',')) {
    const std::string word = trim(raw);
    if (word.empty()) continue;
    if (word == "numerics")
      allow.numerics = true;
    else if (word == "order")
      allow.order = true;
    else if (word == "optimisation" || word == "optimization")
      allow.optimisation = true;
    else
      throw ConfigError("--allow takes numerics, order and optimisation (separated by commas), not '" + word + "'.");
  }
  return allow;
}

std::optional<Setting> larger_pieces(const JobView& job) {
  if (job.bounded_by_length) return std::nullopt;
  const int64_t rows = 4 * (job.micro_batch_size > 0 ? std::min(job.micro_batch_size, job.batch_size) : job.batch_size);
  const int64_t batch = std::max(job.batch_size, rows);
  Setting values = batch_of(batch, std::max<int64_t>(1, job.effective_batch() / batch));
  values[kMicroPath] = std::to_string(rows);
  return values;
}

std::optional<Setting> in_buckets(const JobView& job, const Allow& allow, const Setting& setting) {
  if (!allow.order || job.buckets || !job.ragged || job.bounded_by_length || !job.computes_padding) return std::nullopt;
  return combine(setting, {{kBucketing, "true"}, {kBuckets, "8"}});
}

std::optional<int> other_threads(const JobView& job, const MachineFacts& machine) {
  if (machine.allowed_cpus < 2) return std::nullopt;
  return job.threads > 1 ? 1 : machine.allowed_cpus;
}

std::optional<Setting> other_precision(const JobView& job, const MachineFacts& machine, const Allow& allow) {
  if (!allow.numerics || job.pinned.count(kPrecision) != 0) return std::nullopt;
  if (rate_of(machine, job.precision) <= 0) {  // not measured: the units must do
    if (job.precision == "bf16-mixed" || !device::has_bf16_units(machine)) return std::nullopt;
    return precision_of("bf16-mixed");
  }
  std::string best;
  for (const char* precision : {"32-true", "bf16-mixed", "16-mixed"})
    if (precision != job.precision && (best.empty() || rate_of(machine, precision) > rate_of(machine, best)))
      best = precision;
  // Where matrix products are much slower, nothing around them makes up for it.
  if (rate_of(machine, best) < 0.7 * rate_of(machine, job.precision)) return std::nullopt;
  return precision_of(best);
}

int casts_added(const JobView& job, const Setting& precision) {
  return (precision.at(kPrecision) != kFull) - (job.precision != kFull);
}

std::vector<Candidate> make_candidates(const JobView& job, const Observed& observed, const MachineFacts& machine,
                                       const Allow& allow, const PlanModel& plans) {
  return Maker(job, observed, machine, allow, plans).run();
}

}  // namespace redline::tune
