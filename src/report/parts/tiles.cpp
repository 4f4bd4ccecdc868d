#include "report/parts/tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config/job.h"
#include "core/error.h"
#include "core/strings.h"
#include "draw/escape.h"
#include "measure/statistics.h"

namespace redline::report {

namespace {

std::string field_of(const measure::Event& event, const char* name) {
  const measure::FieldValue* value = event.find(name);
  const auto* text = value != nullptr ? std::get_if<std::string>(value) : nullptr;
  return text != nullptr ? *text : "";
}

Tile state_tile(const RunPart& run) {
  std::string why, started;
  bool ended = false;
  for (const measure::Event& event : run.record.events) {
    if (event.kind == "run.started" || event.kind == "run.resumed") {
      ended = false;
      if (started.empty()) started = event.time;
    }
    if (event.kind == "run.ended") ended = true, why = field_of(event, "why");
  }
  const int64_t steps = run.record.steps.empty() ? 0 : run.record.steps.back().step;
  const bool signal = starts_with(why, "SIG");
  const std::string when =
      started.size() >= 16 ? "started " + started.substr(0, 10) + " " + started.substr(11, 5) + " UTC" : "";
  if (!ended)
    return {"steps", format_count(static_cast<double>(steps)), when.empty() ? "" : "not ended; " + when, true};
  return {signal ? "stopped" : "finished", format_count(static_cast<double>(steps)) + " steps",
          (why.empty() ? "" : why + "; ") + when, !signal};
}

// The mean of the last twentieth: a single step's loss says little.
std::optional<double> end_loss(const RunPart& run) {
  const auto& rows = run.record.steps;
  if (rows.empty()) return std::nullopt;
  const size_t count = std::max<size_t>(1, rows.size() / 20);
  double sum = 0;
  for (size_t i = rows.size() - count; i < rows.size(); ++i) sum += rows[i].loss;
  return sum / static_cast<double>(count);
}

Tile loss_tile(const RunPart& run) {
  const std::optional<double> loss = end_loss(run);
  Tile tile{"loss", loss ? fmt::format("{:.4g}", *loss) : "-", "", true};
  std::optional<measure::MetricPoint> last, best;
  for (const measure::MetricPoint& point : run.record.metrics) {
    if (point.name != "val_loss" || !std::isfinite(point.value)) continue;
    last = point;
    if (!best || point.value < best->value) best = point;
  }
  if (!last) {
    tile.detail = "no validation";
    return tile;
  }
  tile.title = "loss → val_loss";
  tile.value += fmt::format(" → {:.4g}", last->value);
  tile.detail = best->step == last->step ? "its best" : fmt::format("best {:.4g} at step {}", best->value, best->step);
  tile.good = std::isfinite(loss.value_or(0));
  return tile;
}

Tile time_tile(const RunPart& run) {
  double seconds = 0;
  for (const measure::StepRow& row : run.record.steps) seconds += static_cast<double>(row.wall_ns) * 1e-9;
  return {"time of training", format_seconds(seconds), "step " + format_seconds(run.seen.step_seconds), true};
}

// Of blocks of neighbouring steps, which are not independent of each other.
Tile speed_tile(const RunPart& run) {
  Tile tile{"samples/s", fmt::format("{:.4g}", run.seen.samples_per_second), "", true};
  std::vector<double> blocks;
  const auto& rows = run.record.steps;
  const size_t size = std::max<size_t>(4, rows.size() / 40);
  for (size_t begin = 0; begin + size <= rows.size(); begin += size) {
    double samples = 0, seconds = 0;
    for (size_t i = begin; i < begin + size; ++i)
      samples += rows[i].samples, seconds += static_cast<double>(rows[i].wall_ns) * 1e-9;
    if (seconds > 0) blocks.push_back(samples / seconds);
  }
  if (blocks.size() < 4) {
    tile.detail = "too few steps for an interval";
    return tile;
  }
  const measure::Interval interval = measure::bootstrap_median(blocks);
  tile.detail = fmt::format("median {:.4g} ({:.4g} to {:.4g})", measure::median(blocks), interval.low, interval.high);
  return tile;
}

Tile batch_tile(const RunPart& run) {
  Tile tile{"batch", fmt::format("{:.4g} samples a step", run.seen.samples_per_step), "", true};
  try {
    const config::Node tree = config::read_yaml_text(run.record.config_yaml, "config.resolved.yaml");
    const auto text = [&](const char* path) {
      const config::Node* found = tree.find_path(path);
      return found != nullptr && found->is_scalar() ? found->text() : std::string();
    };
    const std::string batch = text("model.train_ds.batch_size"), accumulate = text("trainer.accumulate_grad_batches");
    if (!batch.empty() && batch != "0")
      tile.value = batch + (accumulate.empty() || accumulate == "1" ? "" : " × " + accumulate);
    tile.detail = text("trainer.precision");
    if (const std::string task = text("task"); !task.empty()) tile.detail += (tile.detail.empty() ? "" : ", ") + task;
  } catch (const Error&) {
    // A config that cannot be read says nothing; the figures of the steps stay.
  }
  return tile;
}

Tile memory_tile(const RunPart& run) {
  int64_t process = 0;
  for (const measure::StepRow& row : run.record.steps) process = std::max(process, row.rss_bytes);
  return {"peak tensor memory", format_bytes(static_cast<uint64_t>(run.seen.peak_bytes)),
          process > 0 ? "process " + format_bytes(static_cast<uint64_t>(process)) : "", true};
}

}  // namespace

std::vector<Tile> run_tiles(const RunPart& run) {
  std::vector<Tile> tiles = {state_tile(run), loss_tile(run),  time_tile(run),
                             speed_tile(run), batch_tile(run), memory_tile(run)};
  int64_t guards = 0;
  for (const measure::Event& event : run.record.events) guards += event.kind.starts_with("guard.") ? 1 : 0;
  if (guards > 0)
    tiles.push_back({"guards", fmt::format("acted {} time{}", guards, guards == 1 ? "" : "s"), "", false});
  return tiles;
}

std::string draw_tiles(const std::vector<Tile>& tiles) {
  std::string out = "<div class=\"tiles\">";
  for (const Tile& tile : tiles)
    out += fmt::format("<div class=\"tile{}\"><span>{}</span><b>{}</b><small>{}</small></div>", tile.good ? "" : " bad",
                       draw::escape_html(tile.title), draw::escape_html(tile.value), draw::escape_html(tile.detail));
  return out + "</div>";
}

}  // namespace redline::report
