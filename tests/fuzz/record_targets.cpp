// What a run directory holds, as `report`, `doctor` and a resumed run read it.
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/hash.h"
#include "measure/detail/steps_file.h"
#include "measure/json_lines.h"
#include "measure/tune_card.h"
#include "target.h"

namespace redline::fuzz {

namespace {

using namespace redline::measure;

bool read_steps(std::span<const std::byte> bytes) {
  try {
    const StepsContent content = decode_steps(text_of(bytes), "fuzz");
    require(content.good_bytes >= 0 && content.good_bytes <= static_cast<int64_t>(bytes.size()),
            "a writer continues inside the file");
    require(content.rows.size() * kStepRowBytes <= bytes.size(), "rows come from bytes");
    const auto once = without_repeats(content.rows);
    for (size_t i = 1; i < once.size(); ++i) require(once[i - 1].step < once[i].step, "steps ascend");
    std::string again = encode_steps_header();
    for (const StepRow& row : content.rows) encode_step(row, again);
    require(decode_steps(again, "again").rows.size() == content.rows.size(), "what was read can be stored");
    return !content.rows.empty();
  } catch (const DataError&) {
    return false;
  }
}

std::vector<std::string> steps_seeds() {
  std::string text = encode_steps_header();
  StepRow row;
  for (row.step = 1; row.step < 4; ++row.step) encode_step(row, text);
  row.step = 2;  // as a resumed run repeats it
  row.loss = NAN;
  encode_step(row, text);
  return {text, text.substr(0, text.size() - 100)};
}

void repair_steps(std::string& bytes) {
  for (size_t end = kStepsHeaderBytes + kStepRowBytes; end <= bytes.size(); end += kStepRowBytes) {
    const auto row = std::as_bytes(std::span(bytes)).subspan(end - kStepRowBytes, kStepRowBytes - 4);
    const uint32_t sum = crc32c(row);
    std::memcpy(bytes.data() + end - 4, &sum, 4);
  }
}

// Both kinds of lines: each text is tried as either.
bool read_lines(std::span<const std::byte> bytes) {
  bool accepted = false;
  try {
    std::vector<Event> events;
    const auto content = read_events(text_of(bytes), "fuzz", events);
    require(content.good_bytes <= static_cast<int64_t>(bytes.size()), "a writer continues inside the file");
    std::string again = lines_header("redline.events");
    for (const Event& event : events) again += event_line(event.time, event.kind, event.fields);
    std::vector<Event> second;
    require(read_events(again, "again", second).warnings.empty() && second.size() == events.size(),
            "events that were read can be stored");
    accepted |= !events.empty();
  } catch (const DataError&) {
  }
  try {
    std::vector<MetricPoint> metrics;
    read_metrics(text_of(bytes), "fuzz", metrics);
    accepted |= !metrics.empty();
  } catch (const DataError&) {
  }
  std::string_view rest = text_of(bytes);
  while (!rest.empty()) {  // the fast way may give up, but may not find something else
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const auto fast = parse_metric_line_fast(line);
    if (!fast) continue;
    const auto plain = parse_metric_line(line);
    require(plain && plain->step == fast->step && plain->name == fast->name &&
                (plain->value == fast->value || (std::isnan(plain->value) && std::isnan(fast->value))),
            "the fast reader of metrics agrees with the plain one");
  }
  return accepted;
}

std::vector<std::string> lines_seeds() {
  const std::string time = "2026-11-15T20:01:02.345Z";
  return {lines_header("redline.events") +
              event_line(time, "run.started", {{"pid", int64_t{12}}, {"resumed", false}, {"host", "a \"b\"\n"}}) +
              event_line(time, "guard.nan", {{"step", int64_t{-7}}, {"loss", 0.25}}),
          lines_header("redline.metrics") + metric_line(1, "train_loss", 1.5) + metric_line(2, "train_loss", NAN) +
              metric_line(2, "val_loss", -1e-30) + metric_line(1, "train_loss", 3)};
}

bool read_card(std::span<const std::byte> bytes) {
  try {
    const TuneCard card = tune_card_from_json(std::string(text_of(bytes)), "fuzz");
    card.break_even.samples();
    card.ledger.median_prediction_error_points();
    const std::string stored = tune_card_to_json(card);
    require(tune_card_to_json(tune_card_from_json(stored, "again")) == stored, "a card survives being stored");
    return true;
  } catch (const DataError&) {
    return false;
  }
}

std::vector<std::string> card_seeds() {
  TuneCard card;
  card.created = "2026-11-15T20:01:02.345Z";
  card.fingerprint = {"m", "d", "machine \"x\"", "v", "r"};
  card.values = {{"trainer.intra_op_threads", "2"}};
  LedgerEntry entry;
  entry.field = "trainer.precision";
  entry.predicted = 0.5;
  entry.add_one_in = RatioEstimate{0.4, {0.38, 0.42}, 6};
  card.ledger.entries = {entry, {}};
  card.ledger.best = RatioEstimate{1.7, {1.6, 1.8}, 8};
  card.certificate = Certificate{};
  card.certificate->reference_losses = {1.5, NAN, HUGE_VAL};
  card.largest_batch = LargestBatch{64, 1, 2, false};
  return {tune_card_to_json(TuneCard{}), tune_card_to_json(card)};
}

}  // namespace

std::vector<Target> record_targets() {
  return {{"steps", read_steps, steps_seeds, repair_steps},
          {"run_lines", read_lines, lines_seeds},
          {"tune_card", read_card, card_seeds}};
}

}  // namespace redline::fuzz
