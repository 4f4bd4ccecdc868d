// The report for scripts. Numbers only that the records and judgements hold; schema_version changes when a name does.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "measure/phases.h"
#include "report/page.h"

namespace redline::report {

namespace {

using nlohmann::json;

json known_or_null(double value) { return value >= 0 ? json(value) : json(); }

json surroundings_json(const std::optional<doctor::Surroundings>& seen) {
  if (!seen) return json();
  const auto known = [](const std::optional<double>& value) { return value ? json(*value) : json(); };
  json off_core = json::object();
  for (size_t p = 0; p < measure::kNumPhases; ++p)
    if (seen->off_core[p])
      off_core[std::string(measure::phase_name(static_cast<measure::Phase>(p)))] = *seen->off_core[p];
  return {{"seconds", seen->seconds},
          {"disturbed_share", seen->disturbed},
          {"cores", seen->cores},
          {"own_cores", seen->own},
          {"other_cores", known(seen->others)},
          {"stolen_cores", known(seen->stolen)},
          {"waited_cores", known(seen->waited)},
          {"throttled_cores", known(seen->throttled)},
          {"memory_pressure", known(seen->memory_pressure)},
          {"disk_pressure", known(seen->disk_pressure)},
          {"swapped_pages_per_second", known(seen->swapped)},
          {"neighbour", seen->neighbour},
          {"stopped_share", known(seen->stopped)},
          {"reads_per_second", known(seen->reads)},
          {"read_bytes_per_second", known(seen->read_bytes)},
          {"disk_read_bytes_per_second", known(seen->disk_read_bytes)},
          {"others_disk_bytes_per_second", known(seen->others_disk_bytes)},
          {"off_core_share", off_core},
          {"gigahertz", known(seen->gigahertz)},
          {"best_gigahertz", known(seen->best_gigahertz)},
          {"switches_per_second", seen->switches},
          {"major_faults_per_second", seen->major_faults}};
}

json observation_json(const doctor::Observation& seen) {
  json phases = json::object(), stages = json::object();
  for (size_t p = 0; p < measure::kNumPhases; ++p)
    phases[std::string(measure::phase_name(static_cast<measure::Phase>(p)))] = {
        {"seconds_per_step", seen.phases[p].seconds_per_step},
        {"share", seen.phases[p].share},
        {"seconds_per_occurrence", seen.phases[p].seconds_per_occurrence},
        {"occurrences", seen.phases[p].occurrences}};
  for (size_t s = 0; s < measure::kNumStages; ++s)
    stages[std::string(measure::stage_name(static_cast<measure::Stage>(s)))] = seen.stage_seconds_per_step[s];
  return {{"steps", seen.steps},
          {"step_seconds", seen.step_seconds},
          {"samples_per_second", seen.samples_per_second},
          {"steps_per_second", seen.steps_per_second()},
          {"micro_batches_per_second", seen.iterations_per_second},
          {"padding_share", seen.padding_share},
          {"costs",
           {{"known", seen.costs.known},
            {"padding_share", seen.costs.padding_share},
            {"padding_error", seen.costs.padding_error},
            {"fixed_share", seen.costs.fixed_share},
            {"fixed_error", seen.costs.fixed_error}}},
          {"cores_used", known_or_null(seen.cores_used)},
          {"gpu_utilisation", known_or_null(seen.gpu_utilisation)},
          {"measuring_seconds", seen.measuring_seconds},
          {"surroundings", surroundings_json(seen.surroundings)},
          {"peak_bytes", seen.peak_bytes},
          {"rss_bytes", seen.rss_bytes},
          {"phases", phases},
          {"loader_worker_seconds", stages}};
}

json ratio_json(const measure::RatioEstimate& estimate) {
  return {{"ratio", estimate.ratio},
          {"low", estimate.interval.low},
          {"high", estimate.interval.high},
          {"blocks", estimate.blocks}};
}

json ranks_json(const doctor::RankView& view) {
  json out = {{"step_seconds", view.step_seconds},
              {"exposed_seconds", view.exposed_seconds},
              {"overlapped_seconds", view.overlapped_seconds},
              {"free_network_gain", view.free_network_gain},
              {"equal_ranks_gain", view.equal_ranks_gain},
              {"sentences", view.sentences}};
  for (const doctor::RankLine& line : view.ranks) {
    json phases = json::object();
    for (size_t p = 0; p < measure::kNumPhases; ++p)
      phases[std::string(measure::phase_name(static_cast<measure::Phase>(p)))] = line.phase_seconds[p];
    out["ranks"].push_back({{"rank", line.rank},
                            {"steps", line.steps},
                            {"own_seconds", line.own_seconds},
                            {"wait_seconds", line.wait_seconds},
                            {"phases", phases}});
  }
  return out;
}

json diagnosis_json(const doctor::Diagnosis& diagnosis) {
  json out = {{"verdict", doctor::limit_name(diagnosis.limit)},
              {"detail", diagnosis.detail},
              {"confidence", diagnosis.confidence},
              {"sentence", diagnosis.sentence},
              {"cure", diagnosis.cure},
              {"unseen", diagnosis.unseen}};
  for (const doctor::LimitScore& score : diagnosis.scores)
    out["scores"].push_back({{"limit", doctor::limit_name(score.limit)},
                             {"gain", score.gain},
                             {"gain_at_least", score.at_least()},
                             {"detail", score.detail},
                             {"evidence", score.evidence},
                             {"cure", score.cure}});
  for (const doctor::Ceiling& ceiling : diagnosis.ceilings)
    out["ceilings"].push_back({{"experiment", doctor::experiment_name(ceiling.kind)},
                               {"speed", ratio_json(ceiling.speed)},
                               {"sentence", ceiling.sentence}});
  for (const doctor::Candidate& s : diagnosis.suggestions) {
    // The leading option; `values` has all that move together.
    const auto names = [&](const auto& value) {
      return s.field.starts_with(value.first.substr(value.first.rfind('.') + 1));
    };
    const auto found = std::ranges::find_if(s.values, names);
    const auto leading = found == s.values.end() ? s.values.begin() : found;
    out["suggestions"].push_back(
        {{"option", leading->first},
         {"value", leading->second},
         {"values", s.values},
         {"predicted_gain", s.predicted_gain},
         {"predicted_interval", {{"low", s.predicted_interval().low}, {"high", s.predicted_interval().high}}},
         {"changes", config::effect_name(s.effect)},
         {"reason", s.reason}});
  }
  for (const doctor::Trap& trap : diagnosis.traps)
    out["traps"].push_back({{"id", trap.id}, {"sentence", trap.sentence}});
  return out;
}

}  // namespace

std::string render_json(const Page& page) {
  json out = {{"schema_version", 1},
              {"summary", page.summary.empty() ? default_summary(page) : page.summary},
              {"runs", json::array()}};
  for (const RunPart& run : page.runs) {
    json part = observation_json(run.seen);
    part["name"] = run.name;
    part["warnings"] = run.record.warnings;
    if (run.diagnosis) part["diagnosis"] = diagnosis_json(*run.diagnosis);
    for (const doctor::OperatorLine& line : run.operators)
      part["operators"].push_back({{"name", line.name},
                                   {"calls", line.calls},
                                   {"seconds", line.seconds},
                                   {"share", line.share},
                                   {"share_of_peak", known_or_null(line.share_of_peak)},
                                   {"number", line.number},
                                   {"fell_back", line.fell_back}});
    if (run.ranks) part["ranks"] = ranks_json(*run.ranks);
    if (run.card) part["tune_card"] = json::parse(measure::tune_card_to_json(*run.card));
    out["runs"].push_back(std::move(part));
  }
  if (page.comparison) {
    json moved = json::array();
    for (const doctor::PartChange& part : page.comparison->moved)
      moved.push_back({{"part", part.part.name()},
                       {"seconds_per_step", part.seconds_per_step},
                       {"share_of_step", part.share_of_step}});
    out["comparison"] = {{"result", static_cast<int>(page.comparison->result)},
                         {"speed", ratio_json(page.comparison->speed)},
                         {"fail_on", page.comparison->fail_on},
                         {"detectable_loss", page.comparison->detectable_loss},
                         {"moved", moved},
                         {"sentence", page.comparison->sentence}};
  }
  return out.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace redline::report
