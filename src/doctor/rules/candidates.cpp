#include "doctor/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/precision.h"
#include "core/strings.h"
#include "device/machine.h"
#include "doctor/rules/cadences.h"
#include "doctor/rules/compile_cost.h"
#include "doctor/rules/predict.h"

namespace redline::doctor {

using config::Effect;
using config::SearchDimension;
using measure::Phase;

namespace {

constexpr double kCompileDeviation =
    0.15;  // of its gain, log scale: between the guides' +30 % and as much the other way

constexpr double kNoBound = 1e9;
constexpr int64_t kLargestBatch = 256;

double rate_of(const MachineFacts& machine, const std::string& precision) {
  return matrix_gflops(machine, parse_precision(precision).value_or(Precision::Fp32));
}

bool has_units(const MachineFacts& machine, const std::string& precision) {
  switch (parse_precision(precision).value_or(Precision::Fp32)) {
    case Precision::Bf16Mixed:
      return device::has_bf16_units(machine);
    case Precision::Fp16Mixed:
      return device::has_fp16_units(machine);
    case Precision::Fp32:
      break;
  }
  return true;
}

double thread_seconds(double seconds, double parallel, int from, int to) {
  const auto share = [&](int threads) { return 1 - parallel + parallel / threads; };
  return seconds * share(std::max(1, to)) / share(std::max(1, from));
}

std::vector<int64_t> numbers(const SearchDimension& option) {
  std::vector<int64_t> values;
  for (std::string text : option.tried) {
    if (text.ends_with('x')) text.pop_back();  // a factor
    if (const auto number = parse_int(text)) values.push_back(*number);
  }
  return values;
}

// One method per rule; each starts from the row that names it, and a job without that row has no such candidate.
class Rules {
 public:
  Rules(const JobView& job, const Observation& seen, const MachineFacts& machine, const PlanModel& plans,
        std::span<const Ceiling> ceilings)
      : job_(job), seen_(seen), machine_(machine), plans_(plans) {
    wait_ = seen.phase(Phase::Wait).seconds_per_step;
    loader_ = seen.loader_worker_seconds();
    step_ = std::max(1e-9, seen.step_seconds);
    cores_ = std::max(1, machine.allowed_cpus);
    if (const Ceiling* const free = find_ceiling(ceilings, ExperimentKind::FreeLoader))
      free_loader_ = free->gain_at_most();
  }

  std::vector<Candidate> run() {
    batches();
    workers_and_threads();
    buckets();
    padding();
    precision();
    prefetching();
    pinning();
    caching();
    decoding();
    without_a_rule();
    tars();
    channels_last();
    compiling();
    for (Candidate& c : out_) {
      c.late = c.late || c.predicted_gain < -0.2;
      c.shapes_plan = c.group == "batch" || c.group == "buckets" || c.group == "padding" ||
                      (c.group == "precision" && plans_.knows_precision(c.to));
      if (c.shapes_plan || c.group == "precision") c.works_on = WorksOn::Compute;
      if (c.group == "workers" || c.group == "prefetch" || c.group == "cache" || c.group == "decode")
        c.works_on = WorksOn::Loader;
      if (c.shapes_plan) c.deviation = plans_.deviation(c.values);
    }
    return std::move(out_);
  }

 private:
  // How the ledger names a switch and the two values.
  struct Words {
    std::string field, from, to;
  };
  Candidate& add(const char* group, Words w, Setting values, double gain, std::string reason,
                 Effect effect = Effect::Nothing, double ceiling = kNoBound) {
    Candidate c{fmt::format("{} {} -> {}", w.field, w.from, w.to), std::move(values), gain, ceiling, effect, group};
    c.field = std::move(w.field), c.from = std::move(w.from), c.to = std::move(w.to), c.reason = std::move(reason);
    return out_.emplace_back(std::move(c));
  }

  void absent(const std::string& field, Effect effect, const char* why) {
    Candidate& c = add(field.c_str(), {field, "false", "true"}, {}, 0, "", effect);
    c.name = field;
    c.not_tried = why;
    c.not_measurable = true;
  }

  void batches() {
    const SearchDimension* const batch = job_.switch_of("batch");
    const SearchDimension* const micro = job_.switch_of("micro_batch");
    if (batch == nullptr || micro == nullptr) return;
    if (job_.bounded_by_length) {
      add("batch", {batch->name, "by length", "fixed"}, {}, 0, "", Effect::Optimisation).not_tried =
          "batches are bounded by their length (batch_duration, batch_tokens), and so are micro-batches";
      return;
    }
    const int64_t effective = job_.effective_batch();
    const int64_t now = std::min(effective, job_.micro_batch_size > 0 ? job_.micro_batch_size : job_.batch_size);
    for (int64_t power = 1; power < 2 * effective; power *= 2) {
      const int64_t rows = std::min(power, effective);
      if (job_.batch_statistics) {
        if (rows == job_.batch_size || effective % rows != 0 || rows * 4 < job_.batch_size) continue;
        rebatched(rows, effective / rows);
      } else if (rows != now && rows * 4 >= now) {
        // A step is split as one likes: the result is the same but for rounding.
        const Setting values = {{micro->path, std::to_string(rows)}};
        add("batch", {micro->name, std::to_string(now), std::to_string(rows)}, values, plans_.gain(values),
            pieces_reason(), Effect::Numerics);
      }
    }
    // A step that is split anyway gains by larger pieces; a larger step saves only the optimiser's share.
    if (job_.accumulate > 1 && seen_.phase(Phase::Optimiser).share < 0.05) return;
    for (const int64_t factor : numbers(*batch)) {
      const int64_t rows = job_.batch_size * factor;
      // An epoch keeps some steps.
      if (job_.samples > 0 && rows * job_.accumulate > std::max<int64_t>(1, job_.samples / 8)) break;
      if (rows > kLargestBatch) break;
      rebatched(rows, job_.accumulate);
    }
  }

  std::string pieces_reason() const {
    const std::string fixed = fmt::format("{:.0f} % of a step do not grow with the batch", 100 * fixed_share(seen_));
    if (seen_.pieces.piece_seconds < 1e-6) return fixed;
    return fmt::format("a piece costs {} however small, {}", format_seconds(seen_.pieces.piece_seconds), fixed);
  }

  // Guide 4 reads fewer iterations of more samples as a loss of speed.
  std::string rebatched_reason(int64_t batch, double gain) const {
    const double now = seen_.iterations_per_second;
    if (batch == job_.batch_size || now <= 0) return pieces_reason();
    const double then = now * (1 + gain) * static_cast<double>(job_.batch_size) / static_cast<double>(batch);
    return fmt::format(
        "{}. An iteration holds {} samples instead of {}, so {:.2f} iterations/s become about {:.2f}: "
        "compare samples/s",
        pieces_reason(), batch, job_.batch_size, now, then);
  }

  void rebatched(int64_t batch, int64_t accumulate) {
    const Setting values = {{job_.path("batch"), std::to_string(batch)},
                            {job_.path("micro_batch"), std::to_string(batch)},
                            {job_.path("accumulation"), std::to_string(accumulate)}};
    const auto text = [](int64_t b, int64_t a) { return a == 1 ? std::to_string(b) : fmt::format("{} x {}", b, a); };
    add("batch", {job_.switch_of("batch")->name, text(job_.batch_size, job_.accumulate), text(batch, accumulate)},
        values, plans_.gain(values), rebatched_reason(batch, plans_.gain(values)), Effect::Optimisation)
        .consent = Effect::Optimisation;
  }

  double worker_step_seconds(int workers, int threads, double parallel, double paid) const {
    const double compute = thread_seconds(std::max(1e-9, step_ - wait_), parallel, job_.threads, threads);
    return predicted_step_seconds({compute, loader_, threads, cores_, machine_.has_cuda, paid}, workers);
  }

  void workers_and_threads() {
    const SearchDimension* const option = job_.switch_of("workers");
    const SearchDimension* const other = job_.switch_of("threads");
    if (option == nullptr || other == nullptr) return;
    const Prior paid = paid_by_step(cores_);
    const Prior parallel{seen_.calibration.parallel_share, seen_.calibration.parallel_deviation};
    const auto gain_if = [&](int workers, int threads, double parallel_share, double paid_share) {
      const double now =
          job_.workers == 0 ? step_ : worker_step_seconds(job_.workers, job_.threads, parallel_share, paid_share);
      return now / worker_step_seconds(workers, threads, parallel_share, paid_share) - 1;
    };
    const auto gain = [&](int workers, int threads) { return gain_if(workers, threads, parallel.mean, paid.mean); };
    const auto miss = [&](int workers, int threads) {
      return std::hypot(miss_of(paid, [&](double share) { return gain_if(workers, threads, parallel.mean, share); }),
                        threads == job_.threads ? 0 : miss_of(parallel, [&](double share) {
                          return gain_if(workers, threads, share, paid.mean);
                        }));
    };
    // Free loading can gain no more than what the step waits and what workers take from its cores.
    const double share = std::min(0.95, (wait_ + (job_.workers > 0 ? loader_ / cores_ : 0)) / step_);
    const double bound = std::min(free_loader_, 1 / (1 - share) - 1 + 0.02);
    const std::string reason =
        fmt::format("{} of loader work beside {} of computing per step, on {} cores", format_seconds(loader_),
                    format_seconds(std::max(0.0, step_ - wait_)), cores_);
    for (const int threads : {cores_, std::max(1, cores_ - 1), std::max(1, cores_ / 2), 1}) {
      const bool same = threads == job_.threads;
      const auto text = [&](int w, int t) { return same ? std::to_string(w) : fmt::format("{} x {}", w, t); };
      for (const int64_t tried : numbers(*option)) {
        const auto workers = static_cast<int>(tried);
        if (workers > cores_ || (same && workers == job_.workers)) continue;
        Setting values = {{option->path, std::to_string(workers)}};
        if (!same) values[other->path] = std::to_string(threads);
        if (std::ranges::find(out_, values, &Candidate::values) != out_.end()) continue;
        add("workers",
            {same ? option->name : option->name + " x " + other->name, text(job_.workers, job_.threads),
             text(workers, threads)},
            values, std::min(gain(workers, threads), same ? free_loader_ : kNoBound), reason,
            same ? Effect::Nothing : Effect::Numerics, same ? bound : kNoBound)
            .deviation = miss(workers, threads);
      }
    }
    // A job without workers has nothing that could be ahead; with them, further ahead is one more thing to try.
    const SearchDimension* const ahead = job_.switch_of("prefetch");
    if (ahead == nullptr || job_.workers > 0 || job_.prefetch >= 8) return;
    const int workers = std::min(2, cores_);
    add("workers",
        {option->name + " x " + ahead->name, fmt::format("0 x {}", job_.prefetch), fmt::format("{} x 8", workers)},
        {{option->path, std::to_string(workers)}, {ahead->path, "8"}},
        std::min(gain(workers, job_.threads), free_loader_), reason, Effect::Nothing, bound)
        .deviation = miss(workers, job_.threads);
  }

  void buckets() {
    const SearchDimension* const option = job_.switch_of("buckets");
    const std::string bucketing = job_.path("bucketing");
    if (option == nullptr || bucketing.empty() || !job_.ragged || job_.bounded_by_length) return;
    const std::string now = job_.buckets ? std::to_string(job_.num_buckets) : "off";
    std::vector<std::string> counts = {"off"};
    counts.insert(counts.end(), option->tried.begin(), option->tried.end());
    for (const std::string& count : counts) {
      if (count == now) continue;
      Setting values = {{bucketing, count == "off" ? "false" : "true"}};
      if (count != "off") values[option->path] = count;
      add("buckets", {option->name, now, count}, values, plans_.gain(values), padding_reason(), Effect::Order).consent =
          Effect::Order;
    }
  }

  std::string padding_reason() const {
    std::string text = fmt::format("{:.0f} % of a batch is padding", 100 * seen_.padding_share);
    if (seen_.costs.known)
      text += fmt::format(", and it costs {:.0f} % of forward and backward", 100 * seen_.costs.padding_share);
    return text;
  }

  void padding() {
    const SearchDimension* const option = job_.switch_of("padding");
    if (option == nullptr || job_.dynamic_padding || !job_.ragged) return;
    const Setting values = {{option->path, "true"}};
    add("padding", {option->name, "false", "true"}, values, plans_.gain(values), padding_reason(), Effect::Numerics);
  }

  void precision() {
    const SearchDimension* const option = job_.switch_of("precision");
    if (option == nullptr) return;
    const double now = rate_of(machine_, job_.precision);
    for (const std::string& tried : option->tried) {
      if (tried == job_.precision) continue;
      const double then = rate_of(machine_, tried);
      const Setting values = precision_setting(job_, tried);
      const bool raced = plans_.knows_precision(tried), measured = now > 0;
      const std::string rates = fmt::format("{:.0f} instead of {:.0f} GFLOP/s", then, now);
      Candidate& c = add("precision", {option->name, job_.precision, tried}, values,
                         raced ? plans_.gain(values) : predicted_precision_gain(seen_, now, then),
                         fmt::format("{}; forward and backward are {:.0f} % of the step",
                                     measured && then > 0 ? "matrix products at " + rates
                                                          : "the rate of its matrix products is not known here",
                                     100 * compute_share(seen_)),
                         Effect::Numerics);
      c.consent = Effect::Numerics;
      c.deviation =
          miss_of(kMatrixWork, [&](double share) { return predicted_precision_gain(seen_, now, then, share); });
      // Faster products are not yet a faster step: without a race of it that is a hope, not a prediction.
      // The same where the machine was too busy to measure its rates; then its units say what is worth a race.
      c.unpredicted = !raced && (!measured || then > now);
      if (c.unpredicted) c.predicted_gain = 0, c.deviation = 0;
      if (!measured && !has_units(machine_, tried)) {
        c.not_tried = "this processor has no units for it";
      } else if (measured && then <= 0) {
        c.not_tried = "LibTorch has no kernel for it here";
        c.not_measurable = true;
      } else if (then < 0.1 * now) {
        c.not_tried = fmt::format("matrix products run at {}: a trial would last too long", rates);
      }
    }
  }

  void prefetching() {
    const SearchDimension* const option = job_.switch_of("prefetch");
    if (option == nullptr || job_.workers == 0) return;
    const double waits = std::min(0.95, wait_ / step_);
    for (const int64_t ahead : numbers(*option))
      if (ahead > job_.prefetch)
        add("prefetch", {option->name, std::to_string(job_.prefetch), std::to_string(ahead)},
            {{option->path, std::to_string(ahead)}}, 0.0,
            fmt::format("{:.0f} % of the step is waiting for data", 100 * waits), Effect::Nothing,
            std::min(free_loader_, removal_gain(waits)));
  }

  void caching() {
    const SearchDimension* const option = job_.switch_of("cache");
    if (option == nullptr) return;
    const double saved = seen_.stage(measure::Stage::Read) + seen_.stage(measure::Stage::Decode);
    const auto without = [&](double seconds) {
      return std::min(free_loader_, removal_gain(std::min(0.95, seconds / step_)));
    };
    // Without workers the step pays for all of it.
    const Prior paid = job_.workers == 0 ? Prior{1, 0} : paid_by_step(cores_);
    const auto gain = [&](double share) { return without(share * saved / (job_.workers == 0 ? 1 : cores_)); };
    // The first epoch fills the cache: shorter trials than an epoch cannot show it.
    for (const std::string& kind : option->tried)
      if (kind != job_.cache)
        add("cache", {option->name, job_.cache, kind}, {{option->path, kind}}, gain(paid.mean),
            fmt::format("reading and decoding take {} of worker time per step", format_seconds(saved)), Effect::Nothing,
            without(saved))
            .deviation = miss_of(paid, gain);
  }

  void decoding() {
    const SearchDimension* const option = job_.switch_of("decode");
    if (option == nullptr || !job_.images || job_.fast_decode) return;
    const double decode = seen_.stage(measure::Stage::Decode);
    const auto gain = [&](double share) {
      return removal_gain(std::min(0.95, share * decode / (job_.workers == 0 ? 1 : cores_) / step_));
    };
    Candidate& c =
        add("decode", {option->name, "exact", "fast"}, {{option->path, "fast"}}, gain(kDecodedForNothing.mean),
            fmt::format("decoding takes {} of worker time per step; pixels change by rounding", format_seconds(decode)),
            Effect::Numerics);
    c.consent = Effect::Numerics;
    c.deviation = miss_of(kDecodedForNothing, gain);
  }

  Candidate& unforeseen(const SearchDimension& option, const std::string& from, const std::string& to, Effect effect) {
    return add(option.name.c_str(), {option.name, from, to}, {{option.path, to}}, 0.0,
               "no rule foresees it; a race shows it", effect);
  }
  void the_other_way_round(const SearchDimension& option, bool on, Effect effect) {
    unforeseen(option, on ? "true" : "false", on ? "false" : "true", effect);
  }

  // Rows that name values and no rule: each is raced.
  void without_a_rule() {
    for (const SearchDimension& option : job_.switches) {
      for (const std::string& value : option.tried) {
        if (!option.rule.empty() || value == option.value) continue;
        Candidate& c = unforeseen(option, option.value, value, option.effect);
        c.unpredicted = true;
        c.late = option.value == "true";  // what is on by default was put there for speed
        c.consent = option.effect >= Effect::Order ? option.effect : Effect::Nothing;
      }
    }
  }

  void pinning() {
    const SearchDimension* const option = job_.switch_of("pinning");
    if (option == nullptr) return;
    if (!job_.has_cuda) return absent(option->name, Effect::Nothing, "there is no device to copy to");
    the_other_way_round(*option, job_.pin_memory, Effect::Nothing);
  }

  void tars() {
    const SearchDimension* const option = job_.switch_of("tars");
    if (option == nullptr || job_.tarred) return;
    absent(option->name, Effect::Order,
           job_.images
               ? "the pictures are not in tars; WebDataset tars are read as they are (`path` may name them), and "
                 "the gain needs a disk that seeks"
               : "the data is not in tars; `redline data tar` makes them, and the gain needs a disk that seeks");
  }

  void channels_last() {
    const SearchDimension* const option = job_.switch_of("channels_last");
    if (option == nullptr) return;
    if (!job_.supports_channels_last) return absent(option->name, Effect::Numerics, "the model has no images");
    the_other_way_round(*option, job_.channels_last, Effect::Numerics);
  }

  // It pays when what it saves over the run is more than the compilation takes.
  void compiling() {
    const SearchDimension* const option = job_.switch_of("compile");
    if (option == nullptr || job_.compile != "false") return;
    if (!job_.compile_refusal.empty()) return absent(option->name, Effect::Numerics, job_.compile_refusal.c_str());
    Candidate& c = unforeseen(*option, "false", "true", Effect::Numerics);
    c.unpredicted = true;
    c.deviation = kCompileDeviation;
    c.works_on = WorksOn::Compute;
    c.reason = fmt::format(
        "no rule foresees it: it fuses what operators leave apart, and loses the kernels made by hand; a trial begins "
        "with a compilation of about {}",
        format_seconds(kCompileSeconds));
    const int64_t needed = steps_to_earn_compilation(step_);
    if (const int64_t steps = job_.steps(); steps > 0 && steps < needed)
      c.not_tried = fmt::format(
          "the run is too short: compiling takes about {}, which a step that is {:.0f} % faster brings back in {} "
          "steps, and the run has {}",
          format_seconds(kCompileSeconds), kCompileGain * 100, needed, steps);
  }

  const JobView& job_;
  const Observation& seen_;
  const MachineFacts& machine_;
  const PlanModel& plans_;
  double wait_ = 0, loader_ = 0, step_ = 0, free_loader_ = kNoBound;
  int cores_ = 1;
  std::vector<Candidate> out_;
};

}  // namespace

Setting precision_setting(const JobView& job, const std::string& precision) {
  return {{job.path("precision"), precision}, {"trainer.precision_strict", "true"}};
}

std::vector<Candidate> find_candidates(const JobView& job, const Observation& seen, const MachineFacts& machine,
                                       const PlanModel& plans, std::span<const Ceiling> ceilings,
                                       double cadence_share) {
  std::vector<Candidate> all = Rules(job, seen, machine, plans, ceilings).run();
  for (Candidate& candidate : cadence_candidates(job, seen, ceilings, cadence_share))
    all.push_back(std::move(candidate));
  return all;
}

}  // namespace redline::doctor
