#include "app/run_page.h"

#include <cstdio>

#include "app/terminal.h"
#include "core/file_ops.h"
#include "core/log.h"
#include "core/strings.h"
#include "device/profile.h"
#include "measure/machine_json.h"
#include "models/register.h"
#include "tune/experiments.h"

namespace redline::app {

report::RunPart read_part(const std::string& directory) {
  report::RunPart part;
  part.name = directory;
  part.record = measure::read_run(directory);
  const std::vector<measure::SurroundingsWindow> around = doctor::surroundings_of(part.record);
  part.seen = doctor::observe(doctor::undisturbed(part.record.steps, around));
  part.seen.surroundings = doctor::summarise(around);
  MachineFacts machine;
  if (!part.record.machine_json.empty())
    machine = measure::machine_from_json(part.record.machine_json, directory + "/machine.json");
  // Records of earlier versions may hold rates of a starved probe.
  if (!device::rates_problem(machine).empty()) device::clear_rates(machine);
  task::Registry registry;
  models::register_all(registry);
  part.diagnosis = doctor::diagnose(tune::view_of_record(part.record, registry), part.seen, {}, machine);
  const auto card = std::filesystem::path(directory) / "tune_card.json";
  if (std::filesystem::exists(card)) part.card = measure::tune_card_from_json(read_file(card), card.string());
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
