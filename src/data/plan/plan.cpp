// Settings, filter and buckets of a plan; the order of an epoch is drawn in plan_order.cpp and cut into groups in
// plan_groups.cpp.
#include "data/plan/plan.h"

#include <cmath>
#include <numeric>

#include "core/check.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/strings.h"
#include "data/plan/length_buckets.h"
#include "data/plan/plan_order.h"
#include "data/plan/shuffle.h"

namespace redline::data {

namespace {

constexpr int kMaxBuckets = 255;  // bucket numbers are bytes

std::string list_text(const auto& values) {
  std::string text = "[";
  for (const auto& value : values) {
    if (text.size() > 1) text += ',';
    text += format_double(static_cast<double>(value));
  }
  text += ']';
  return text;
}

}  // namespace

bool HoldOut::takes(int64_t sample) const {
  if (share <= 0) return true;
  constexpr uint64_t kKey = 0x686f6c64;  // the same samples in every job of this data
  const double place = static_cast<double>(mix_key(static_cast<uint64_t>(sample), kKey) >> 11) * 0x1p-53;
  return (place < share) == inverted;
}

Planner::Planner(PlanSettings settings, PlanSource source)
    : settings_(std::move(settings)), source_(std::move(source)) {
  check_settings();
  filter();
  find_parts();
  check_epoch_size();
  if (settings_.shuffle && (settings_.window_locality_groups > 0 || settings_.window_samples > 0)) find_locality();
  make_buckets();
  hash_ = hash64(describe(), source_.fingerprint);
}

void Planner::check_settings() const {
  const auto& s = settings_;
  REDLINE_CHECK(s.batch_size >= 0 && s.groups_per_step > 0 && s.replicas > 0, "counts of a plan are positive");
  REDLINE_CHECK(s.batch_size > 0 || s.group_length > 0.0, "a group is bounded by count or by length");
  REDLINE_CHECK(!(s.parts_are_buckets && s.parts_are_sampled), "parts have one use");
  if (source_.size == 0) throw DataError("The data set has no samples: check the manifest or path it was built from.");
  if (source_.size >= int64_t{1} << 32)
    throw DataError("The data set has " + std::to_string(source_.size) +
                    " samples; a plan can number 4294967295. Split it into several runs.");
  if (s.num_buckets > kMaxBuckets || s.bucket_edges.size() >= kMaxBuckets) {
    throw ConfigError("num_buckets may be at most " + std::to_string(kMaxBuckets) + ".");
  }
  if (!std::is_sorted(s.bucket_edges.begin(), s.bucket_edges.end())) {
    throw ConfigError("bucket_duration_bins must ascend, found " + list_text(s.bucket_edges) + ".");
  }
  for (const std::vector<int64_t>* list : {&s.part_batch_sizes, &s.part_weights}) {
    if (!list->empty() && list->size() != s.part_sizes.size()) {
      throw ConfigError("bucketing_batch_size and bucketing_weights need one value per bucket: " +
                        std::to_string(s.part_sizes.size()) + " buckets, " + std::to_string(list->size()) + " values.");
    }
  }
}

void Planner::filter() {
  const auto& s = settings_;
  const bool filters = s.min_length > 0.0 || s.max_length < std::numeric_limits<double>::infinity();
  const bool buckets = s.num_buckets > 1 || !s.bucket_edges.empty() || s.group_length > 0.0;
  const size_t size = static_cast<size_t>(source_.size);
  filtered_.total = source_.size;
  kept_.reserve(size);
  if (!filters && !buckets) {
    kept_.resize(size);
    std::iota(kept_.begin(), kept_.end(), 0u);
    std::erase_if(kept_, [&](uint32_t i) { return !s.hold_out.takes(i); });
    filtered_.held_out = source_.size - static_cast<int64_t>(kept_.size());
  } else {
    lengths_.resize(size);
    for (size_t i = 0; i < size; ++i) {
      const double length = source_.length(static_cast<int64_t>(i));
      const bool unknown = std::isnan(length);
      lengths_[i] = unknown ? 0.0f : static_cast<float>(std::clamp(length, 0.0, s.cut_length));
      if (unknown) ++filtered_.unknown;
      if (!unknown && length < s.min_length) {
        ++filtered_.too_short;
      } else if (!unknown && length > s.max_length) {
        ++filtered_.too_long;
      } else if (!s.hold_out.takes(static_cast<int64_t>(i))) {
        ++filtered_.held_out;
      } else {
        kept_.push_back(static_cast<uint32_t>(i));
      }
    }
  }
  filtered_.kept = static_cast<int64_t>(kept_.size());
  if (kept_.empty() && filtered_.held_out > 0)
    throw DataError("The data set has too few samples (" + std::to_string(source_.size) +
                    ") to set some of them apart for validation; give model.validation_ds.");
  if (kept_.empty()) {
    throw DataError("None of the " + std::to_string(source_.size) + " samples is between " +
                    format_double(s.min_length) + " and " + format_double(s.max_length) + " long (" +
                    std::to_string(filtered_.too_short) + " shorter, " + std::to_string(filtered_.too_long) +
                    " longer): check min_duration and max_duration.");
  }
}

void Planner::find_parts() {
  if (!settings_.parts_are_buckets && !settings_.parts_are_sampled) return;
  int64_t first = 0;
  part_begin_.push_back(0);
  for (int64_t size : settings_.part_sizes) {
    first += size;
    const auto end = std::lower_bound(kept_.begin(), kept_.end(), static_cast<uint64_t>(first));
    part_begin_.push_back(static_cast<size_t>(end - kept_.begin()));
  }
  REDLINE_CHECK(first == source_.size, "the parts cover the source");
}

// Entries of an epoch, repeats included, are numbered with 32 bits too.
void Planner::check_epoch_size() const {
  const auto& s = settings_;
  double entries = static_cast<double>(kept_.size());
  if (s.parts_are_sampled) entries *= s.sampling_scale;
  if (s.parts_are_buckets && !s.part_weights.empty()) {
    entries = 0.0;
    for (size_t p = 0; p < s.part_weights.size(); ++p)
      entries += static_cast<double>(part(p).size()) * static_cast<double>(s.part_weights[p]);
  }
  entries *= static_cast<double>(s.replicas);
  if (!(entries < 4294967296.0)) {
    throw ConfigError("An epoch would have " + format_double(entries) +
                      " samples, repeats included; a plan can number 4294967295. Lower bucketing_weights or "
                      "concat_sampling_scale.");
  }
}

std::span<const uint32_t> Planner::part(size_t index) const {
  return std::span<const uint32_t>(kept_).subspan(part_begin_[index], part_begin_[index + 1] - part_begin_[index]);
}

void Planner::find_locality() {
  REDLINE_CHECK(source_.locality.size() == static_cast<size_t>(source_.size),
                "a shuffle window needs every sample's locality group");
  const int32_t highest = *std::max_element(source_.locality.begin(), source_.locality.end());
  std::vector<uint32_t> count(static_cast<size_t>(highest) + 1, 0);
  for (uint32_t sample : kept_) ++count[static_cast<size_t>(source_.locality[sample])];
  locality_begin_.assign(count.size() + 1, 0);
  std::partial_sum(count.begin(), count.end(), locality_begin_.begin() + 1);
  locality_members_.resize(kept_.size());
  std::vector<uint32_t> next(locality_begin_.begin(), locality_begin_.end() - 1);
  for (uint32_t sample : kept_) locality_members_[next[static_cast<size_t>(source_.locality[sample])]++] = sample;
}

void Planner::make_buckets() {
  const auto& s = settings_;
  if (!s.bucket_edges.empty()) {
    edges_ = s.bucket_edges;
  } else if (s.num_buckets > 1) {
    edges_ = quantile_edges(lengths_, kept_, s.num_buckets);
  }
  if (!edges_.empty()) bucket_of_ = bucket_numbers(lengths_, edges_);
}

std::string Planner::describe() const {
  const auto& s = settings_;
  std::string text = "plan 1";
  const auto add = [&text](const char* name, const std::string& value) {
    text += std::string("; ") + name + "=" + value;
  };
  add("samples", std::to_string(source_.size));
  add("seed", std::to_string(s.seed));
  add("shuffle", s.shuffle ? "true" : "false");
  add("drop_last", s.drop_last ? "true" : "false");
  add("batch_size", std::to_string(s.batch_size));
  add("groups_per_step", std::to_string(s.groups_per_step));
  add("length", list_text(std::vector{s.min_length, s.max_length, s.cut_length}));
  add("buckets", std::to_string(s.num_buckets) + " " + list_text(s.bucket_edges));
  add("group_length", format_double(s.group_length));
  if (!locality_begin_.empty()) {
    add("window",
        std::to_string(s.window_locality_groups) + " groups, " + std::to_string(s.window_samples) + " samples");
  }
  if (s.parts_are_buckets) {
    add("parts", list_text(s.part_sizes) + " order " + std::to_string(static_cast<int>(s.part_order)) + " batch " +
                     list_text(s.part_batch_sizes) + " weights " + list_text(s.part_weights));
  }
  if (s.parts_are_sampled) {
    add("concat", list_text(s.part_sizes) + " sampling " + std::to_string(static_cast<int>(s.sampling)) +
                      " temperature " + format_double(s.temperature) + " weights " + list_text(s.sampling_weights) +
                      " scale " + format_double(s.sampling_scale));
  }
  if (s.hold_out.share > 0)
    add("hold_out", format_double(s.hold_out.share) + (s.hold_out.inverted ? " only" : " without"));
  add("replicas", std::to_string(s.replicas));
  return text;
}

int64_t Planner::substitute(int64_t epoch, int64_t sample, int attempt) const {
  const uint64_t salt = mix_key(static_cast<uint64_t>(sample), static_cast<uint64_t>(attempt));
  const uint32_t count = static_cast<uint32_t>(kept_.size());
  uint32_t pick = PlanStream(settings_.seed, epoch, salt, PlanDraw::Substitute).below(count);
  if (kept_[pick] == sample) pick = (pick + 1) % count;
  return kept_[pick];
}

std::shared_ptr<const EpochPlan> Planner::epoch(int64_t index) const {
  REDLINE_CHECK(index >= 0, "epochs count from 0");
  auto plan = std::make_shared<EpochPlan>();
  plan->epoch = index;
  plan->num_samples = static_cast<uint32_t>(source_.size);
  plan->groups_per_step = settings_.groups_per_step;
  Order order;
  if (settings_.parts_are_sampled) {
    order_sampled(index, order);
  } else {
    for (int64_t replica = 0; replica < settings_.replicas; ++replica) {
      if (settings_.parts_are_buckets)
        order_parts(index, replica, order);
      else if (!locality_begin_.empty())
        order_windows(index, replica, order);
      else
        order_plain(index, replica, order);
    }
  }
  if (edges_.empty() || settings_.parts_are_buckets) {
    plan->entries = std::move(order.entries);
    cut_groups(order, *plan);
  } else {
    cut_bucketed(order, *plan);
  }
  return plan;
}

}  // namespace redline::data
