// The standard metrics. A new one is a row here and a call where it is measured.
#include "measure/metrics.h"

#include "core/error.h"
#include "core/strings.h"

namespace redline::measure {
namespace {

constexpr std::string_view kValidationPrefix = "val_";

MetricTable make_standard_metrics() {
  MetricTable table;
  const auto mean = MetricType::Mean, current = MetricType::Current, total = MetricType::Total;
  table.add({"loss", mean, "", "Training loss, weighted by what the loss averages over."});
  table.add({"learning_rate", current, "", "Learning rate of the first parameter group."});
  table.add({"grad_norm", current, "", "Norm of all gradients before clipping, after unscaling."});
  table.add({"loss_scale", current, "", "Loss scale in force (16-mixed)."});
  table.add({"epoch", current, "epochs", "Passes over the training data, with the fraction of the current one."});
  table.add({"samples_per_second", mean, "1/s", "Training samples per second of wall time, everything included."});
  table.add({"steps_per_second", mean, "1/s",
             "Optimiser steps per second of wall time; says nothing when the batch changes."});
  table.add({"step_seconds", mean, "s", "Wall time of one optimiser step."});
  table.add({"data_wait_share", mean, "share", "Part of the step in which the loop waited for a batch."});
  table.add({"padding_share", mean, "share", "Part of the batch's items that is padding."});
  table.add({"flops_share", mean, "share",
             "Arithmetic the model needs over what the machine's fp32 matrix product could do in that time."});
  table.add({"memory_live_bytes", current, "bytes", "Tensor memory in use at the end of the step."});
  table.add({"memory_peak_bytes", current, "bytes", "Largest tensor memory within the step."});
  table.add({"rss_bytes", current, "bytes", "Resident memory of the process."});
  table.add({"cores_used", mean, "cores", "CPU time of the process per second of wall time."});
  table.add({"gpu_utilisation", current, "share", "Share of time in which a kernel ran on the GPU (NVML)."});
  table.add({"gpu_memory_bytes", current, "bytes", "Memory in use on the GPU (NVML)."});
  table.add({"skipped_steps", total, "steps", "Optimiser steps not taken because gradients overflowed."});
  table.add({"guard_actions", total, "", "Times a guard repeated a step in safer precision or in smaller pieces."});
  table.add({"bad_samples", total, "samples", "Samples that could not be read or decoded and were replaced."});
  table.add(
      {"cache_hit_share", current, "share", "Samples found in the feature cache, of all looked up since the start."});
  table.add({"read_share", mean, "share", "Workers' time in reading, of their time in all stages."});
  table.add({"decode_share", mean, "share", "Workers' time in decoding, of their time in all stages."});
  table.add({"transform_share", mean, "share", "Workers' time in transforms, of their time in all stages."});
  table.add({"collate_share", mean, "share", "Workers' time in collation, of their time in all stages."});
  table.add({"checkpoint_seconds", current, "s", "Time training stood still for the last checkpoint."});
  table.add({"validation_seconds", current, "s", "Wall time of the last validation."});
  table.add({"wall_time", current, "s", "When the line was written: seconds since 1970, UTC."});
  table.add({"step_time_drift", current, "share", "Running step time over the run's own early step time, less 1."});
  return table;
}

}  // namespace

const char* metric_type_name(MetricType type) {
  switch (type) {
    case MetricType::Mean:
      return "mean";
    case MetricType::Current:
      return "current";
    case MetricType::Total:
      return "total";
  }
  return "?";
}

void MetricTable::add(MetricInfo metric) {
  const bool spelled = !metric.name.empty() &&
                       metric.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_/") == std::string::npos;
  if (!spelled) {
    throw ConfigError("The metric name '" + printable(metric.name) +
                      "' must consist of lower-case letters, digits, '_' and '/'.");
  }
  for (const MetricInfo& known : metrics_) {
    if (known.name == metric.name) {
      throw ConfigError("The metric '" + metric.name + "' is declared twice; give one of them another name.");
    }
  }
  metrics_.push_back(std::move(metric));
}

const MetricInfo* MetricTable::find(std::string_view name) const {
  for (const MetricInfo& metric : metrics_) {
    if (metric.name == name) return &metric;
  }
  if (name.starts_with(kValidationPrefix)) {
    name.remove_prefix(kValidationPrefix.size());
    // "val_loss/other": of a further validation set.
    if (!name.starts_with(kValidationPrefix)) return find(name.substr(0, name.find('/')));
  }
  return nullptr;
}

const MetricTable& standard_metrics() {
  static const MetricTable table = make_standard_metrics();
  return table;
}

std::string metrics_markdown(const std::vector<MetricSection>& sections) {
  std::string text =
      "# Metrics\n\n"
      "<!-- Generated from the metric table (src/measure/metrics.cpp and each task's metrics()); do not edit. -->\n\n"
      "Names in `metrics.jsonl`, in the CSV file and as TensorBoard tags. A metric of the training loop measured in "
      "validation carries "
      "the prefix `val_`.\nType: *mean* is averaged over the steps since the last log line, *current* is the value at "
      "the step, *total* "
      "is counted since the run started.\nA *share* lies between 0 and 1.\n";
  for (const MetricSection& section : sections) {
    text += "\n## " + section.title + "\n\n| name | type | unit | meaning |\n|---|---|---|---|\n";
    for (const MetricInfo& metric : section.metrics) {
      text += "| `" + metric.name + "` | " + metric_type_name(metric.type) + " | " + metric.unit + " | " +
              metric.sentence + " |\n";
    }
  }
  return text;
}

}  // namespace redline::measure
