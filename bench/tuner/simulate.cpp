// simulate GRID SEARCHES: the tuner's search against the measured grid of a job (one line a setting: rows, workers,
// bf16, buckets, threads, speed against the reference), with noise that wanders with the machine, predictions that are
// off, and the seconds that blocks and new trials take. Prints what the choice loses against the best of the grid, for
// budgets as the tuner leaves them to its search of 40, 120 and 600 s.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <list>
#include <map>
#include <vector>

#include "core/philox.h"
#include "measure/statistics.h"
#include "tune/search/search.h"

using namespace redline;
using tune::Candidate;
using tune::Setting;

namespace {

struct Machine {
  const char* name;
  double block_noise, wander, stays;  // of a turn pair; of the machine's speed; from one block to the next
};

class Job {
 public:
  explicit Job(const std::string& file) {
    std::ifstream in(file);
    int rows, workers, bf16, buckets, threads;
    double ratio;
    while (in >> rows >> workers >> bf16 >> buckets >> threads >> ratio)
      logs_[{rows, workers, bf16, buckets, threads}] = std::log(ratio);
    for (const auto& [point, log] : logs_) best_ = std::max(best_, log);
  }
  double log_speed(const Setting& s) const {
    const auto number = [&](const char* key, int now) { return s.count(key) ? std::stoi(s.at(key)) : now; };
    return logs_.at({number("rows", 2), number("workers", 0), number("bf16", 0), number("buckets", 0),
                     number("threads", 2)}) +
           (s.count("fused") ? -1.0 : 0);
  }
  double best() const { return best_; }

 private:
  std::map<std::vector<int>, double> logs_;
  double best_ = 0;
};

struct Prediction {
  double scale;                       // common to the plan
  std::map<std::string, double> off;  // of each value
  double of(const Job& job, const Setting& s) const {
    double log = scale * job.log_speed(s);
    for (const auto& [key, value] : s) log += off.at(key + value);
    return log;
  }
};

std::vector<Candidate> candidates(const Job& job, const Prediction& predicted) {
  using config::Effect;
  std::vector<Candidate> all;
  const auto add = [&](const char* group, const Setting& values, Effect effect) -> Candidate& {
    Candidate c{tune::setting_text(values), values, std::expm1(predicted.of(job, values)), 1e9, effect, group};
    c.field = c.name;
    return all.emplace_back(std::move(c));
  };
  for (const char* rows : {"4", "8", "16"}) add("batch", {{"rows", rows}}, Effect::Numerics).shapes_plan = true;
  add("buckets", {{"buckets", "1"}}, Effect::Order).shapes_plan = true;
  add("precision", {{"bf16", "1"}}, Effect::Numerics).shapes_plan = true;
  for (const char* workers : {"1", "2"}) add("workers", {{"workers", workers}}, Effect::Nothing);
  for (const char* workers : {"0", "1", "2"})
    add("workers", {{"workers", workers}, {"threads", "1"}}, Effect::Numerics);
  add("cache", {{"cache", "1"}}, Effect::Nothing);
  Candidate& fused = add("fused", {{"fused", "0"}}, Effect::Numerics);
  fused.predicted_gain = 0, fused.unpredicted = fused.late = true;
  Candidate& features = add("features", {{"features", "1"}}, Effect::Nothing);
  features.predicted_gain = 0, features.unpredicted = true;
  for (Candidate& c : all) c.late = c.late || c.predicted_gain < -0.2;  // as the doctor's rules do
#ifndef REDLINE_OLD_SEARCH
  for (Candidate& c : all) {
    if (c.shapes_plan) c.works_on = doctor::WorksOn::Compute;
    if (c.group == "workers" || c.group == "cache") c.works_on = doctor::WorksOn::Loader;
  }
#endif
  return all;
}

struct Outcome {
  double lost = 0, blocks = 0, spent = 0;
};

Outcome simulate(const Job& job, const Machine& machine, double budget, double block_seconds, double start_seconds,
                 uint64_t seed) {
  KeyedStream draw(seed, 0, 0, 11);
  Prediction predicted{1 + 0.3 * draw.normal(), {}};
  std::map<std::string, double> feels;  // how much more than others a value suffers from a slow machine
  for (const char* value : {"rows4", "rows8", "rows16", "buckets1", "bf161", "workers0", "workers1", "workers2",
                            "threads1", "cache1", "fused0", "features1"}) {
    predicted.off[value] = 0.03 * draw.normal();
    feels[value] = 0.3 * draw.normal();
  }
  tune::SearchOptions options{.budget_seconds = budget};
  options.plan_gain = [&](const Setting& s) { return std::expm1(predicted.of(job, s)); };
  double slow = machine.wander * draw.normal();
  const auto pass = [&] {
    slow = machine.stays * slow + std::sqrt(1 - machine.stays * machine.stays) * machine.wander * draw.normal();
  };
  const auto noise = [&](double suffers) {
    const double held_up = draw.uniform() < 0.03 ? 0.3 : 0;  // a neighbour, now and then
    return suffers * slow + machine.block_noise * draw.normal() + held_up;
  };
#ifndef REDLINE_OLD_SEARCH
  for (int race = 0; race < 3; ++race) {  // those that calibrate the predictions
    options.earlier_races.emplace_back();
    const double suffers = 1 + 0.3 * draw.normal();
    for (int block = 0; block < 3; ++block, pass()) options.earlier_races.back().push_back(noise(1) - noise(suffers));
  }
#endif
  tune::Search search(candidates(job, predicted), options);
  Outcome outcome;
  std::list<Setting> alive;
  while (const auto pairing = search.next(outcome.spent)) {
    outcome.spent += block_seconds;
    for (const Setting& side : {pairing->a, pairing->b}) {
      if (std::find(alive.begin(), alive.end(), side) == alive.end()) outcome.spent += start_seconds;
      alive.remove(side), alive.push_front(side);
      if (alive.size() > 3) alive.pop_back();
    }
    pass();
    const auto seconds = [&](const Setting& s) -> std::optional<double> {
      if (s.count("features")) return std::nullopt;
      double suffers = 1;
      for (const auto& [key, value] : s) suffers += feels.at(key + value);
      return std::exp(noise(suffers) - job.log_speed(s));
    };
    const std::optional<double> a = seconds(pairing->a), b = seconds(pairing->b);
    search.report(a, b, "it does not run");
    outcome.blocks += 1;
  }
  outcome.lost = std::exp(job.best() - job.log_speed(search.best())) - 1;
  return outcome;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return fmt::print("simulate GRID SEARCHES\n"), 2;
  const Job job(argv[1]);
  const int searches = std::stoi(argv[2]);
  for (const Machine& machine :
       {Machine{"quiet", 0.02, 0.02, 0.6}, Machine{"shared", 0.04, 0.08, 0.9}, Machine{"busy", 0.07, 0.15, 0.9}})
    for (const double budget : {40.0, 120.0, 600.0}) {
      std::vector<double> lost;
      double blocks = 0, spent = 0;
      for (int i = 0; i < searches; ++i) {
        // A third to a half of the budget is the search's; the rest observes, proves and confirms.
        const Outcome one =
            simulate(job, machine, 0.4 * budget, std::max(0.6, 4 * budget / 600), 0.8, static_cast<uint64_t>(i));
        lost.push_back(100 * one.lost);
        blocks += one.blocks / searches, spent += one.spent / searches;
      }
      fmt::print(
          "{{\"machine\": \"{}\", \"budget\": {}, \"mean\": {:.2f}, \"median\": {:.2f}, \"worst_tenth\": {:.2f}, "
          "\"blocks\": {:.0f}, "
          "\"spent\": {:.0f}, \"best\": {:.3f}}}\n",
          machine.name, budget, measure::mean(lost), measure::median(lost), measure::quantile(lost, 0.9), blocks, spent,
          std::exp(job.best()));
    }
  return 0;
}
