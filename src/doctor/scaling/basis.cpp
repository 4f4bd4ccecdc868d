// From a run's record to what the forecast starts from. Times of buckets hold the wait for slower ranks, so of all
// ranks that kept a step the shortest counts: that of the rank that came last.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/error.h"
#include "doctor/scaling.h"
#include "measure/reduce_timeline.h"

namespace redline::doctor {

namespace {

using measure::Phase;
using measure::ReduceTimeline;
using measure::RunRecord;

constexpr double kNano = 1e-9;
// Of a run of one process, which has measured none: what two ranks on one machine show.
constexpr OwnCost kAssumedCost{100e-6, 1e-9};
constexpr int64_t kBucketLimit = int64_t{25} << 20;

using StepTimelines = std::map<int64_t, std::vector<ReduceTimeline>>;  // by step, of the ranks that kept it

StepTimelines timelines_by_step(std::span<const RunRecord> ranks) {
  StepTimelines found;
  for (const RunRecord& record : ranks) {
    std::map<int64_t, ReduceTimeline> own;  // a resumed run repeats steps: later ones win
    for (const measure::Event& event : record.events)
      if (auto timeline = measure::timeline_of(event)) own[timeline->step] = std::move(*timeline);
    for (auto& [step, timeline] : own) found[step].push_back(std::move(timeline));
  }
  return found;
}

ScaleStep scale_step(const ReduceTimeline& timeline) {
  ScaleStep step;
  step.own_seconds = kNano * static_cast<double>(timeline.own_ns);
  step.backward_seconds = kNano * static_cast<double>(timeline.backward_ns);
  for (const measure::BucketTimes& bucket : timeline.buckets)
    step.buckets.push_back({static_cast<double>(bucket.bytes), kNano * static_cast<double>(bucket.ready_ns)});
  step.exchanges = static_cast<double>(timeline.exchanges);
  step.layer_sums = static_cast<double>(timeline.layer_sums);
  return step;
}

double shortest_exchange(const std::vector<ReduceTimeline>& ranks) {
  double least = std::numeric_limits<double>::infinity();
  for (const ReduceTimeline& one : ranks)
    if (one.exchanges > 0)
      least = std::min(least, kNano * static_cast<double>(one.exchange_ns) / static_cast<double>(one.exchanges));
  return least;
}

// Seconds that a bucket took by itself, for each bucket of a step.
std::vector<double> bucket_seconds(const std::vector<ReduceTimeline>& ranks) {
  std::vector<double> least(ranks[0].buckets.size(), std::numeric_limits<double>::infinity());
  for (const ReduceTimeline& one : ranks) {
    if (one.buckets.size() != least.size()) return {};
    int64_t free_at = 0;
    for (size_t i = 0; i < least.size(); ++i) {
      const int64_t begin = std::max(one.buckets[i].ready_ns, free_at);
      free_at = std::max(free_at, one.buckets[i].done_ns);
      least[i] = std::min(least[i], kNano * static_cast<double>(std::max<int64_t>(0, free_at - begin)));
    }
  }
  return least;
}

// Within a step, so that batches of other lengths, which all ranks get together, do not count.
std::vector<double> deviations_of(const std::vector<ReduceTimeline>& ranks) {
  std::vector<double> found;
  const auto n = static_cast<double>(ranks.size());
  double mean = 0;
  for (const ReduceTimeline& one : ranks) mean += static_cast<double>(one.own_ns) / n;
  if (ranks.size() < 2 || !(mean > 0)) return found;
  for (const ReduceTimeline& one : ranks)
    found.push_back((static_cast<double>(one.own_ns) / mean - 1) * std::sqrt(n / (n - 1)));
  return found;
}

std::map<int64_t, double> wall_by_step(const RunRecord& record) {
  std::map<int64_t, double> wall;
  for (const measure::StepRow& row : record.steps) {
    if ((row.flags & measure::kStepUntimed) != 0 || row.wall_ns <= 0) continue;
    int64_t ns = row.wall_ns;
    for (const Phase phase : {Phase::Log, Phase::Monitor, Phase::Validate, Phase::Checkpoint})
      ns -= row.phase_ns[static_cast<size_t>(phase)];
    wall[row.step] = kNano * static_cast<double>(ns);
  }
  return wall;
}

void add_step(ScaleBasis& basis, const std::vector<ReduceTimeline>& ranks, std::optional<double> wall_seconds) {
  RecordedStep recorded;
  recorded.first = basis.steps.size();
  recorded.count = ranks.size();
  for (const ReduceTimeline& one : ranks) basis.steps.push_back(scale_step(one));
  if (const double seconds = shortest_exchange(ranks); std::isfinite(seconds)) recorded.exchange_seconds = seconds;
  const std::vector<double> seconds = bucket_seconds(ranks);
  for (size_t i = 0; i < seconds.size(); ++i)
    recorded.transfers.emplace_back(static_cast<double>(ranks[0].buckets[i].bytes), seconds[i]);
  recorded.deviations = deviations_of(ranks);
  basis.deviations.insert(basis.deviations.end(), recorded.deviations.begin(), recorded.deviations.end());
  recorded.wall_seconds = wall_seconds;
  basis.recorded.push_back(std::move(recorded));
}

std::vector<measure::NoiseScale> noise_of(const StepTimelines& steps, double samples) {
  double gradient = 0, variance = 0;
  int64_t last = 0;
  for (const auto& [step, ranks] : steps)
    if (ranks[0].gradient_squared && ranks[0].variance) {
      gradient += *ranks[0].gradient_squared;
      variance += *ranks[0].variance;
      last = step;
    }
  if (!(gradient > 0) || !(variance > 0)) return {};
  return {{samples * static_cast<double>(last), variance / gradient}};
}

double samples_of(const RunRecord& record) {
  std::vector<double> samples;
  for (const measure::StepRow& row : record.steps) samples.push_back(row.samples);
  return measure::mean(samples);
}

double gradient_bytes_of(const RunRecord& record) {
  for (const measure::Event& event : record.events)
    if (const measure::FieldValue* value = event.find("gradient_bytes"); value != nullptr)
      if (const auto* bytes = std::get_if<int64_t>(value)) return static_cast<double>(*bytes);
  throw DataError(
      "The record does not say how many bytes of gradients the model has: it is of an older version. Run a few steps "
      "again, best with two ranks: redline launch -n 2 -- train ...");
}

// Buckets as they would be, their gradients spread evenly over backward.
ScaleBasis basis_of_one_process(const RunRecord& record) {
  ScaleBasis basis;
  basis.samples_per_step = samples_of(record);
  basis.own = kAssumedCost;
  const double bytes = gradient_bytes_of(record);
  const auto bucket = static_cast<double>(measure::bucket_bytes(static_cast<int64_t>(bytes), kBucketLimit));
  for (const measure::StepRow& row : record.steps) {
    if ((row.flags & measure::kStepUntimed) != 0 || row.wall_ns <= 0) continue;
    const auto seconds = [&](Phase phase) {
      return kNano * static_cast<double>(row.phase_ns[static_cast<size_t>(phase)]);
    };
    ScaleStep step;
    step.own_seconds = kNano * static_cast<double>(row.wall_ns) - seconds(Phase::Log) - seconds(Phase::Monitor) -
                       seconds(Phase::Validate) - seconds(Phase::Checkpoint);
    step.backward_seconds = seconds(Phase::Backward) / std::max(1, row.micro_batches);
    step.exchanges = 1;
    for (double sent = 0; sent < bytes;) {
      const double size = std::min(bytes - sent, sent == 0 ? static_cast<double>(measure::kFirstBucketBytes) : bucket);
      sent += size;
      step.buckets.push_back({size, step.backward_seconds * sent / bytes});
    }
    basis.steps.push_back(std::move(step));
  }
  if (basis.steps.size() > 4) basis.steps.erase(basis.steps.begin(), basis.steps.begin() + 3);
  basis.notes = {
      "The run had one process: gradients are taken to come evenly over backward, and what sending costs this machine "
      "is "
      "assumed (100 us a message, 1 ns a byte). A short run of two ranks measures both: redline launch -n 2 -- train "
      "..."};
  return basis;
}

int world_of(const StepTimelines& steps) {
  size_t most = 0;
  for (const auto& [step, ranks] : steps) most = std::max(most, ranks.size());
  return static_cast<int>(most);
}

}  // namespace

// A bucket that came back soon bounds what its messages took; the rest is its bytes'.
OwnCost measured_cost(std::span<const RecordedStep> steps, int world) {
  std::vector<double> exchanges, soonest, per_byte;
  double largest = 0;
  for (const RecordedStep& step : steps) {
    if (step.exchange_seconds) exchanges.push_back(*step.exchange_seconds);
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [bytes, seconds] : step.transfers) {
      largest = std::max(largest, bytes);
      least = std::min(least, seconds);
    }
    if (std::isfinite(least)) soonest.push_back(least);
  }
  const double passes = 2.0 * (world - 1) / world, messages = 2.0 * (world - 1);
  OwnCost own;
  if (!exchanges.empty()) own.message_seconds = measure::median(exchanges) / (world - 1);
  if (!soonest.empty()) own.hop_seconds = std::min(own.message_seconds, measure::median(soonest) / messages);
  for (const RecordedStep& step : steps)
    for (const auto& [bytes, seconds] : step.transfers)
      if (2 * bytes >= largest && bytes > 0)
        per_byte.push_back(std::max(0.0, seconds - messages * own.hop()) / (bytes * passes));
  if (!per_byte.empty()) own.seconds_per_byte = measure::median(per_byte);
  return own;
}

ScaleBasis scale_basis(std::span<const RunRecord> ranks) {
  if (ranks.empty() || ranks[0].steps.empty())
    throw DataError("The run has no finished steps: there is nothing to foretell from. Let it run for at least 20.");
  const StepTimelines steps = timelines_by_step(ranks);
  ScaleBasis basis;
  if (steps.empty() || world_of(steps) < 2) {
    basis = basis_of_one_process(ranks[0]);
    if (basis.steps.empty()) throw DataError("No step of the run was divided into phases; let it run longer.");
    return basis;
  }
  basis.measured = true;
  basis.world = world_of(steps);
  basis.samples_per_step = samples_of(ranks[0]);
  const std::map<int64_t, double> wall = wall_by_step(ranks[0]);
  for (const auto& [step, timelines] : steps) {
    const auto found = wall.find(step);
    add_step(basis, timelines, found != wall.end() ? std::optional(found->second) : std::nullopt);
  }
  basis.own = measured_cost(basis.recorded, basis.world);
  basis.noise = noise_of(steps, basis.samples_per_step);
  if (basis.noise.empty())
    basis.notes.push_back(
        "How noisy the gradients are could not be told from these steps, so nothing is said of the loss: let the run "
        "go "
        "on longer, or give --noise-scale.");
  return basis;
}

}  // namespace redline::doctor
