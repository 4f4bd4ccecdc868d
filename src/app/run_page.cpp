#include "app/run_page.h"

#include <cstdio>

#include "app/terminal.h"
#include "core/error.h"
#include "core/file_ops.h"
#include "core/log.h"
#include "core/strings.h"
#include "device/profile.h"
#include "measure/machine_json.h"
#include "models/register.h"
#include "tune/experiments.h"

namespace redline::app {

std::vector<measure::RunRecord> read_ranks(const std::string& directory) {
  std::vector<measure::RunRecord> records{measure::read_run(directory)};
  const auto folder = std::filesystem::path(directory) / "ranks";
  constexpr int64_t kUnwrittenSteps = 128;  // a killed rank had not written its last rows
  for (int rank = 1; measure::has_run_record(folder / std::to_string(rank)); ++rank) {
    measure::RunRecord record = measure::read_run(folder / std::to_string(rank));
    if (records[0].steps.empty() || record.steps.empty() ||
        record.steps.back().step + kUnwrittenSteps < records[0].steps.back().step)
      break;  // of an earlier start with more ranks
    records.push_back(std::move(record));
  }
  return records;
}

report::RunPart read_part(const std::string& directory) {
  report::RunPart part;
  part.name = directory;
  std::vector<measure::RunRecord> ranks = read_ranks(directory);
  part.ranks = doctor::rank_view(ranks);
  part.record = std::move(ranks[0]);
  const std::vector<measure::SurroundingsWindow> around = doctor::surroundings_of(part.record);
  task::Registry registry;
  models::register_all(registry);
  const doctor::JobView job = tune::view_of_record(part.record, registry);
  part.seen = doctor::observe(doctor::undisturbed(part.record.steps, around), 3, job.computes_padding);
  part.seen.surroundings = doctor::surroundings_summary(part.record);
  part.seen.shared_memory = doctor::fit_shared_memory(part.record.steps, around);
  part.seen.checkpoint_writes = doctor::checkpoint_writes(part.record);
  // A file beside the record that is damaged takes its own part away, not the record's.
  const auto unless_damaged = [&](const auto& read) {
    try {
      read();
    } catch (const DataError& error) {
      part.record.warnings.emplace_back(error.what());
    }
  };
  MachineFacts machine;
  unless_damaged([&] {
    if (!part.record.machine_json.empty())
      machine = measure::machine_from_json(part.record.machine_json, directory + "/machine.json");
  });
  // Records of earlier versions may hold rates of a starved probe.
  if (!device::rates_problem(machine).empty()) device::clear_rates(machine);
  part.diagnosis = doctor::diagnose(job, part.seen, {}, machine);
  const auto card = std::filesystem::path(directory) / "tune_card.json";
  unless_damaged([&] {
    if (std::filesystem::exists(card)) part.card = measure::tune_card_from_json(read_file(card), card.string());
  });
  return part;
}

void print_page(const report::Page& page, const Globals& globals, const std::string& html) {
  if (!html.empty()) {
    write_file_atomic(html, report::render_html(page));
    log_info("The report is in '" + html + "'.");
  }
  const std::string text =
      globals.json ? report::render_json(page) : printable_lines(report::render_text(page, terminal_width()));
  std::fputs(text.c_str(), stdout);
}

}  // namespace redline::app
