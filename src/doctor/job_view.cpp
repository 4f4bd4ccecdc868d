#include "doctor/job_view.h"

#include <algorithm>

#include "core/check.h"
#include "core/strings.h"

namespace redline::doctor {

bool is_rule(const std::string& name) {
  static const std::set<std::string> kRules = {
      "accumulation", "batch",     "bucketing", "buckets",     "cache",   "channels_last",  "checkpoint",
      "compile",      "decode",    "log",       "micro_batch", "monitor", "monitor_epochs", "padding",
      "pinning",      "precision", "prefetch",  "tars",        "threads", "workers",        "validation"};
  return kRules.contains(name);
}

const config::SearchDimension* JobView::switch_of(const std::string& rule) const {
  const auto found = std::ranges::find(switches, rule, &config::SearchDimension::rule);
  return found == switches.end() ? nullptr : &*found;
}

std::string JobView::path(const std::string& rule) const {
  const config::SearchDimension* const found = switch_of(rule);
  return found != nullptr ? found->path : std::string();
}

int64_t JobView::steps() const {
  int64_t least = max_steps;
  const auto bound = [&](int64_t steps) {
    if (steps > 0) least = least > 0 ? std::min(least, steps) : steps;
  };
  bound(max_iters / accumulate);
  if (max_epochs > 0) bound(max_epochs * steps_per_epoch);
  return std::max<int64_t>(0, least);
}

void read_switches(JobView& job) {
  for (const config::SearchDimension& dimension : job.switches) {
    if (dimension.rule.empty()) continue;
    REDLINE_CHECK(is_rule(dimension.rule), "a row names a rule that is there: " + dimension.path);
  }
  const auto text = [&](const char* rule, const std::string& otherwise) {
    const config::SearchDimension* const found = job.switch_of(rule);
    return found != nullptr && !found->value.empty() ? found->value : otherwise;
  };
  const auto count = [&](const char* rule) { return parse_int(text(rule, "")); };
  const auto is_on = [&](const char* rule, bool otherwise) {
    return text(rule, otherwise ? "true" : "false") == "true";
  };
  job.batch_size = std::max<int64_t>(1, count("batch").value_or(1));
  job.micro_batch_size = count("micro_batch").value_or(job.batch_size);
  job.accumulate = std::max<int64_t>(1, count("accumulation").value_or(1));
  job.precision = text("precision", job.precision);
  job.workers = static_cast<int>(count("workers").value_or(0));
  job.threads = static_cast<int>(count("threads").value_or(1));
  job.prefetch = static_cast<int>(count("prefetch").value_or(2));
  job.num_buckets = static_cast<int>(count("buckets").value_or(1));
  job.buckets = is_on("bucketing", job.num_buckets > 1);
  job.dynamic_padding = is_on("padding", true);
  job.tarred = is_on("tars", false);
  job.fast_decode = text("decode", "") == "fast";
  job.pin_memory = is_on("pinning", false);
  job.compile = text("compile", job.compile);
  job.cache = text("cache", job.cache);
  job.log_every_n_steps = count("log").value_or(50);
  job.monitor_every = count("monitor").value_or(0);
  job.monitor_every_epochs = count("monitor_epochs").value_or(0);
  job.val_check_batches = count("validation");  // 1.0 and the like are shares of an epoch
  job.save_every_steps = count("checkpoint");
}

}  // namespace redline::doctor
