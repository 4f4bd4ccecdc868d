#include "tune/ranks/rank_ways.h"

#include <fmt/format.h>

#include <algorithm>

namespace redline::tune {

namespace {

constexpr double kBucketSizes[] = {1, 4, 25};  // MiB

}  // namespace

std::vector<Candidate> ways_to_divide(const RankJob& job, const std::vector<int>& asked, int cores) {
  std::vector<Candidate> ways;
  for (const int ranks : asked) {
    const int threads = std::max(1, cores / ranks);
    if (ranks == job.ranks && threads == job.threads) continue;
    Candidate way;
    way.field = "trainer.devices x trainer.intra_op_threads";
    way.from = fmt::format("{} x {}", job.ranks, job.threads);
    way.to = fmt::format("{} x {}", ranks, threads);
    way.name = way.field + ": " + way.to;
    way.values = {{"trainer.devices", std::to_string(ranks)}, {"trainer.intra_op_threads", std::to_string(threads)}};
    if (ranks > 1) way.values["trainer.sync_batchnorm"] = "true";
    way.group = "ranks";
    if (ranks > cores) {
      way.not_tried = fmt::format("{} ranks on {} cores only take turns", ranks, cores);
      way.not_measurable = true;
    }
    ways.push_back(std::move(way));
  }
  return ways;
}

std::vector<Candidate> ways_to_send(const RankJob& job, const Setting& now, const Allow& allow) {
  const auto found = now.find("trainer.devices");
  const bool sends = found != now.end() ? found->second != "1" : job.ranks > 1;
  std::vector<Candidate> ways;
  const auto add = [&](const char* field, const std::string& from, const std::string& to, config::Effect effect) {
    Candidate way;
    way.field = field;
    way.from = from;
    way.to = to;
    way.name = fmt::format("{}: {}", field, to);
    way.values = {{field, to}};
    way.group = field;
    way.effect = way.consent = effect;
    if (!sends) {
      way.not_tried = "one process sends nothing";
      way.not_measurable = true;
    } else if (const std::string word = allow.missing(effect); !word.empty()) {
      way.not_tried = "waits for --allow " + word;
    }
    ways.push_back(std::move(way));
  };
  double tried = 0;  // sizes that hold all gradients are the same
  for (const double size : kBucketSizes) {
    if (size == job.bucket_cap_mb || tried >= job.gradient_mb) continue;
    tried = size;
    add("trainer.strategy.bucket_cap_mb", fmt::format("{:g}", job.bucket_cap_mb), fmt::format("{:g}", size),
        config::Effect::Nothing);
  }
  for (const char* type : {"none", "bf16", "fp16"})
    if (job.compression != type) add("trainer.strategy.compression", job.compression, type, config::Effect::Numerics);
  return ways;
}

}  // namespace redline::tune
