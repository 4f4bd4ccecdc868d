#include "measure/reduce_timeline.h"

#include <algorithm>

#include "core/strings.h"

namespace redline::measure {

namespace {

// "bytes:ready:done bytes:ready:done ...", nanoseconds.
std::string buckets_text(const std::vector<BucketTimes>& buckets) {
  std::string text;
  for (const BucketTimes& one : buckets)
    text += (text.empty() ? "" : " ") + std::to_string(one.bytes) + ":" + std::to_string(one.ready_ns) + ":" +
            std::to_string(one.done_ns);
  return text;
}

std::optional<std::vector<BucketTimes>> parse_buckets(const std::string& text) {
  std::vector<BucketTimes> buckets;
  if (text.empty()) return buckets;
  for (const std::string& word : split(text, ' ')) {
    const std::vector<std::string> parts = split(word, ':');
    if (parts.size() != 3) return std::nullopt;
    const auto bytes = parse_int(parts[0]), ready = parse_int(parts[1]), done = parse_int(parts[2]);
    if (!bytes || !ready || !done || *bytes < 0 || *ready < 0 || *done < *ready) return std::nullopt;
    buckets.push_back({*bytes, *ready, *done});
  }
  return buckets;
}

struct CountField {
  const char* name;
  int64_t ReduceTimeline::*member;
};
constexpr CountField kCounts[] = {{"step", &ReduceTimeline::step},
                                  {"backward_ns", &ReduceTimeline::backward_ns},
                                  {"end_ns", &ReduceTimeline::end_ns},
                                  {"own_ns", &ReduceTimeline::own_ns},
                                  {"exchanges", &ReduceTimeline::exchanges},
                                  {"exchange_ns", &ReduceTimeline::exchange_ns},
                                  {"layer_sums", &ReduceTimeline::layer_sums},
                                  {"layer_sum_ns", &ReduceTimeline::layer_sum_ns},
                                  {"samples", &ReduceTimeline::samples}};

std::optional<double> number_of(const Event& event, const char* name) {
  const FieldValue* value = event.find(name);
  if (value == nullptr) return std::nullopt;
  if (const auto* real = std::get_if<double>(value)) return *real;
  if (const auto* whole = std::get_if<int64_t>(value)) return static_cast<double>(*whole);
  return std::nullopt;
}

}  // namespace

int64_t bucket_bytes(int64_t total, int64_t limit) { return std::min(limit, std::max(kFirstBucketBytes, total / 10)); }

int64_t ReduceTimeline::bytes() const {
  int64_t sum = 0;
  for (const BucketTimes& one : buckets) sum += one.bytes;
  return sum;
}

int64_t ReduceTimeline::exposed_ns() const { return std::max<int64_t>(0, end_ns - backward_ns); }

int64_t ReduceTimeline::overlapped_ns() const {
  std::vector<BucketTimes> order = buckets;
  std::sort(order.begin(), order.end(),
            [](const BucketTimes& a, const BucketTimes& b) { return a.ready_ns < b.ready_ns; });
  int64_t sum = 0, until = 0;
  for (const BucketTimes& one : order) {
    const int64_t begin = std::max(one.ready_ns, until), end = std::min(one.done_ns, backward_ns);
    sum += std::max<int64_t>(0, end - begin);
    until = std::max(until, end);
  }
  return sum;
}

FieldList timeline_fields(const ReduceTimeline& timeline) {
  FieldList fields;
  for (const CountField& one : kCounts) fields.emplace_back(one.name, timeline.*one.member);
  fields.emplace_back("exposed_ns", timeline.exposed_ns());
  fields.emplace_back("overlapped_ns", timeline.overlapped_ns());
  fields.emplace_back("buckets", buckets_text(timeline.buckets));
  if (timeline.gradient_squared) fields.emplace_back("gradient_squared", *timeline.gradient_squared);
  if (timeline.variance) fields.emplace_back("variance", *timeline.variance);
  return fields;
}

std::optional<ReduceTimeline> timeline_of(const Event& event) {
  if (event.kind != kReduceTimelineEvent) return std::nullopt;
  ReduceTimeline timeline;
  for (const CountField& one : kCounts) {
    const FieldValue* value = event.find(one.name);
    const auto* count = value != nullptr ? std::get_if<int64_t>(value) : nullptr;
    if (count == nullptr || *count < 0) return std::nullopt;
    timeline.*one.member = *count;
  }
  const FieldValue* text = event.find("buckets");
  const auto* words = text != nullptr ? std::get_if<std::string>(text) : nullptr;
  if (words == nullptr) return std::nullopt;
  const auto buckets = parse_buckets(*words);
  if (!buckets) return std::nullopt;
  timeline.buckets = *buckets;
  timeline.gradient_squared = number_of(event, "gradient_squared");
  timeline.variance = number_of(event, "variance");
  return timeline;
}

}  // namespace redline::measure
