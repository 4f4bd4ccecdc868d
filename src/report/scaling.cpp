#include "report/scaling.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/strings.h"
#include "report/parts/wrap.h"

namespace redline::report {

namespace {

std::string rate_text(double bytes_per_second) { return fmt::format("{:.4g} Gbit/s", 8e-9 * bytes_per_second); }

std::string line_of(const doctor::ScalePoint& p) {
  std::string line = fmt::format(
      "  {:>6} {:>12} {:>21} {:>7.0f} % {:>9} {:>9} {:>9}", p.ranks, fmt::format("{:.1f}", p.samples_per_second),
      fmt::format("{:.1f} - {:.1f}", p.samples_interval.low, p.samples_interval.high), 100 * p.efficiency,
      format_seconds(p.step_seconds), format_seconds(p.exposed_seconds), format_seconds(p.exchange_seconds));
  if (p.worth) line += fmt::format(" {:>9.0f} {:>7.2f} {:>7.2f}x", p.batch, *p.worth, *p.faster_to_loss);
  return line + "\n";
}

std::string payoff(const doctor::Forecast& forecast) {
  const std::string by = forecast.by_time_to_loss ? "to the same loss" : "in samples per second";
  if (forecast.stops_paying_at == 0)
    return fmt::format("More ranks pay up to {} at least: each doubling brings {:.0f} % or more {}.",
                       doctor::Forecast::kMostRanks, 100 * (doctor::Forecast::kWorthDoubling - 1), by);
  return fmt::format("It stops paying at {} ranks: twice as many bring less than {:.0f} % {}.",
                     forecast.stops_paying_at, 100 * (doctor::Forecast::kWorthDoubling - 1), by);
}

}  // namespace

std::string scale_text(const doctor::ScaleBasis& basis, const doctor::Network& network,
                       const doctor::Forecast& forecast, int width) {
  double bytes = 0;
  for (const doctor::TimedBucket& bucket : basis.steps[0].buckets) bytes += bucket.bytes;
  std::string out = wrap_text(
      fmt::format("Forecast from {} ({} steps, {:.0f} samples a step, {} of gradients in {} buckets) over a {} of {} "
                  "links with {} latency; every rank keeps its share of the batch. Validation and checkpoints are left "
                  "out.",
                  basis.world == 1 ? "one process" : fmt::format("{} ranks", basis.world), basis.steps.size(),
                  basis.samples_per_step, format_bytes(static_cast<uint64_t>(bytes)), basis.steps[0].buckets.size(),
                  doctor::topology_name(network.topology), rate_text(network.link.bytes_per_second),
                  format_seconds(network.link.latency_seconds)),
      width);
  out += fmt::format("\n  {:>6} {:>12} {:>21} {:>9} {:>9} {:>9} {:>9}", "ranks", "samples/s", "90 % interval",
                     "efficient", "step", "exposed", "exchanges");
  const bool worth = !forecast.points.empty() && forecast.points[0].worth;
  if (worth) out += fmt::format(" {:>9} {:>7} {:>8}", "batch", "worth", "to loss");
  out += "\n";
  for (const doctor::ScalePoint& point : forecast.points) out += line_of(point);
  out += "\n" + wrap_text(payoff(forecast), width);
  if (worth)
    out += wrap_text(
        fmt::format("Worth: what a sample of the larger batch brings against one of {:.0f}, by the gradients' noise of "
                    "{:.0f} samples; to loss: speed to the same loss against {} ranks.",
                    basis.samples_per_step, forecast.noise, basis.world),
        width);
  for (const std::string& note : forecast.notes) out += wrap_text("Note: " + note, width);
  return out;
}

std::string scale_json(const doctor::ScaleBasis& basis, const doctor::Network& network,
                       const doctor::Forecast& forecast) {
  using nlohmann::json;
  const auto interval = [](const measure::Interval& i) { return json{{"low", i.low}, {"high", i.high}}; };
  json points = json::array();
  for (const doctor::ScalePoint& p : forecast.points) {
    json point = {{"ranks", p.ranks},
                  {"samples_per_second", p.samples_per_second},
                  {"samples_per_second_interval", interval(p.samples_interval)},
                  {"efficiency", p.efficiency},
                  {"efficiency_interval", interval(p.efficiency_interval)},
                  {"step_seconds", p.step_seconds},
                  {"own_seconds", p.own_seconds},
                  {"exposed_seconds", p.exposed_seconds},
                  {"exchange_seconds", p.exchange_seconds},
                  {"batch", p.batch},
                  {"worth", p.worth ? json(*p.worth) : json()},
                  {"faster_to_loss", p.faster_to_loss ? json(*p.faster_to_loss) : json()}};
    points.push_back(std::move(point));
  }
  const json out = {{"schema_version", 1},
                    {"basis",
                     {{"ranks", basis.world},
                      {"steps", basis.steps.size()},
                      {"measured", basis.measured},
                      {"samples_per_step", basis.samples_per_step},
                      {"message_seconds", basis.own.message_seconds},
                      {"seconds_per_byte", basis.own.seconds_per_byte},
                      {"noise_scale", basis.noise.empty() ? json() : json(basis.noise[0].noise)}}},
                    {"network",
                     {{"topology", doctor::topology_name(network.topology)},
                      {"bytes_per_second", network.link.bytes_per_second},
                      {"latency_seconds", network.link.latency_seconds},
                      {"per_host", network.per_host}}},
                    {"points", points},
                    {"stops_paying_at", forecast.stops_paying_at == 0 ? json() : json(forecast.stops_paying_at)},
                    {"by_time_to_loss", forecast.by_time_to_loss},
                    {"notes", forecast.notes}};
  return out.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace redline::report
