// redline scale RUN --ranks 4,8,64 --bandwidth 10Gbit --latency 50us: what more ranks would bring, from a run's record.
#include <cstdio>

#include "app/command.h"
#include "app/run_names.h"
#include "app/run_page.h"
#include "app/terminal.h"
#include "core/error.h"
#include "core/strings.h"
#include "doctor/scaling.h"
#include "report/scaling.h"

namespace redline::app {

void add_scale_command(CLI::App& program, const Globals& globals);

namespace {

struct ScaleArguments {
  std::string run, ranks = "2,4,8,16,64", bandwidth = "10Gbit", latency = "50us", topology = "ring";
  int per_host = 0;
  double noise_scale = 0;
};

// "10Gbit", "100Mbit/s", "1.25GB/s": bytes per second.
double parse_rate(const std::string& given) {
  std::string text = to_lower(trim(given));
  if (ends_with(text, "/s")) text.resize(text.size() - 2);
  const size_t unit_at = text.find_first_not_of("0123456789.e+ ");
  const auto number = parse_double(trim(text.substr(0, unit_at)));
  const std::string unit = unit_at == std::string::npos ? "" : text.substr(unit_at);
  constexpr std::pair<const char*, double> kUnits[] = {
      {"bit", 0.125}, {"kbit", 125}, {"mbit", 125e3}, {"gbit", 125e6},  {"tbit", 125e9}, {"b", 1},
      {"kb", 1e3},    {"mb", 1e6},   {"gb", 1e9},     {"gib", 1 << 30}, {"mib", 1 << 20}};
  for (const auto& [name, bytes] : kUnits)
    if (unit == name && number && *number > 0) return *number * bytes;
  throw ConfigError("--bandwidth is '" + printable(given) + "'; expected a rate such as 10Gbit, 100Mbit or 1.25GB/s.");
}

std::vector<int> parse_ranks(const std::string& text) {
  std::vector<int> ranks;
  for (const std::string& word : split(text, ',')) {
    const auto number = parse_int(trim(word));
    if (!number || *number < 1 || *number > doctor::Forecast::kMostRanks)
      throw ConfigError("--ranks is '" + printable(text) + "'; expected numbers from 1 to " +
                        std::to_string(doctor::Forecast::kMostRanks) + " such as 4,8,64.");
    ranks.push_back(static_cast<int>(*number));
  }
  return ranks;
}

doctor::Topology parse_topology(const std::string& text) {
  for (const doctor::Topology one : {doctor::Topology::Ring, doctor::Topology::Tree, doctor::Topology::Hierarchical})
    if (text == doctor::topology_name(one)) return one;
  throw ConfigError("--topology is '" + printable(text) + "'; expected ring, tree or hierarchical.");
}

void run_scale(const ScaleArguments& arguments, const Globals& globals) {
  const auto latency = parse_seconds(arguments.latency);
  if (!latency || *latency < 0)
    throw ConfigError("--latency is '" + printable(arguments.latency) + "'; expected a time such as 50us or 1ms.");
  doctor::Network network;
  network.topology = parse_topology(arguments.topology);
  network.link = {parse_rate(arguments.bandwidth), *latency};
  const std::vector<int> ranks = parse_ranks(arguments.ranks);
  const std::vector<measure::RunRecord> records = read_ranks(find_run(arguments.run).string());
  const doctor::ScaleBasis basis = doctor::scale_basis(records);
  network.per_host = arguments.per_host > 0 ? arguments.per_host : basis.world;
  const std::optional<double> noise = arguments.noise_scale > 0 ? std::optional(arguments.noise_scale) : std::nullopt;
  const doctor::Forecast forecast = doctor::forecast_scale(basis, network, ranks, noise);
  const std::string text = globals.json
                               ? report::scale_json(basis, network, forecast)
                               : printable_lines(report::scale_text(basis, network, forecast, terminal_width()));
  std::fputs(text.c_str(), stdout);
}

}  // namespace

void add_scale_command(CLI::App& program, const Globals& globals) {
  auto arguments = std::make_shared<ScaleArguments>();
  CLI::App* command = program.add_subcommand("scale", "Foretell what more ranks would bring, from a run's record");
  command->add_option("run", arguments->run, "A run directory or its name in runs/, best of two or more ranks")
      ->required();
  command->add_option("--ranks", arguments->ranks, "How many ranks to foretell, e.g. 4,8,64,1024");
  command->add_option("--bandwidth", arguments->bandwidth, "Of each machine's link: 10Gbit, 100Mbit, 1.25GB/s");
  command->add_option("--latency", arguments->latency, "Of a message, one way: 50us");
  command->add_option("--topology", arguments->topology, "How gradients are summed: ring, tree or hierarchical");
  command->add_option("--per-host", arguments->per_host, "Ranks on a machine, for hierarchical (default: as recorded)");
  command->add_option("--noise-scale", arguments->noise_scale,
                      "The gradients' noise in samples, in place of the record's");
  command->callback([arguments, &globals] { run_scale(*arguments, globals); });
}

}  // namespace redline::app
