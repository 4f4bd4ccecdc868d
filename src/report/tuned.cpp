#include "report/tuned.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "draw/escape.h"
#include "report/parts/chart.h"
#include "report/parts/table.h"
#include "report/parts/wrap.h"

namespace redline::report {

namespace {

std::string gain_text(double ratio) { return fmt::format("{:+.1f} %", 100 * (ratio - 1)); }

std::string estimate_text(const measure::RatioEstimate& e) {
  return fmt::format("{} ({} to {})", gain_text(e.ratio), gain_text(e.interval.low), gain_text(e.interval.high));
}

std::string entry_name(const measure::LedgerEntry& entry) {
  return fmt::format("{}: {} -> {}", entry.field, entry.from, entry.to);
}

// "9.42 k samples (589 of its steps)"
std::string break_even_text(const measure::BreakEven& b, double samples) {
  const std::string text = format_count(samples) + " samples";
  if (b.samples_per_step <= 0) return text;
  return text + fmt::format(" ({} of its steps)", format_count(std::ceil(samples / b.samples_per_step)));
}

std::string break_even_sentence(const measure::TuneCard& card) {
  const measure::BreakEven& b = card.break_even;
  const auto samples = b.samples();
  const double cost = b.tuning_seconds + b.compile_seconds, before = b.baseline_finish_seconds();
  std::string cost_text = fmt::format("Tuning cost {}", format_seconds(cost));
  if (b.compile_seconds > 0) cost_text += fmt::format(" ({} of it compiling)", format_seconds(b.compile_seconds));
  if (!samples) return cost_text + "; it does not pay back in this run.";
  const bool pays = *samples <= b.samples_of_run;
  // The finish time's interval is that of the promised ratio.
  const auto finish = [&](double ratio) { return (pays ? cost : 0) + before / std::max(1e-9, ratio); };
  const std::string times =
      fmt::format("{} ({} to {}) instead of {} ({} to {})", format_seconds(b.best_finish_seconds() - (pays ? 0 : cost)),
                  format_seconds(finish(card.promised_ratio.high)), format_seconds(finish(card.promised_ratio.low)),
                  format_seconds(before), format_seconds(before / (1 + b.baseline_spread)),
                  format_seconds(before * (1 + b.baseline_spread)));
  const std::string even = break_even_text(b, *samples);
  if (pays) return fmt::format("{} and pays back after {}; with it, the run finishes in {}.", cost_text, even, times);
  return fmt::format(
      "{} and would pay back after {}; this run has {}. From now on it takes {}, the tuning not counted.", cost_text,
      even, format_count(b.samples_of_run), times);
}

// Empty where nothing was measured.
std::string memory_sentence(const measure::TuneCard& card) {
  const auto bytes = [](int64_t count) { return format_bytes(static_cast<uint64_t>(count)); };
  std::string text;
  if (card.peak_tensor_bytes > 0)
    text = fmt::format("The job needs at most {} of tensors, its longest samples and a validation included.",
                       bytes(card.peak_tensor_bytes));
  if (const auto& largest = card.largest_batch)
    text +=
        fmt::format(" The largest batch of the longest samples that ran within {}: {} at once ({}){}.",
                    bytes(largest->limit_bytes), largest->rows, bytes(largest->peak_bytes),
                    largest->time_ended ? "; larger ones were not tried for lack of time" : "; twice as many did not");
  return text;
}

IntervalChart ledger_chart(const measure::Ledger& ledger) {
  IntervalChart chart{"What each switch gained alone, on this job and machine", "predicted by the doctor", {}};
  for (const measure::LedgerEntry& entry : ledger.entries) {
    if (!entry.add_one_in) continue;
    const auto& e = *entry.add_one_in;
    IntervalBar bar{entry_name(entry),
                    100 * (e.ratio - 1),
                    100 * (e.interval.low - 1),
                    100 * (e.interval.high - 1),
                    true,
                    0,
                    false};
    if (entry.predicted) {
      bar.marker = 100 * (*entry.predicted - 1);
      bar.has_marker = true;
    }
    chart.bars.push_back(std::move(bar));
  }
  return chart;
}

LineChart certificate_chart(const measure::Certificate& certificate) {
  const auto series = [&](const char* name, const std::vector<double>& losses, int color) {
    Series out{name, {}, color};
    const bool by_samples = certificate.curve_samples.size() >= losses.size();
    for (size_t i = 0; i < losses.size(); ++i)
      out.points.emplace_back(by_samples ? certificate.curve_samples[i] : static_cast<double>(i + 1), losses[i]);
    return out;
  };
  return {certificate.paired ? "Held-out loss of the reference and of the tuned job, means over the pairs"
                             : "Loss of the reference and of the tuned job",
          certificate.curve_samples.empty() ? "step" : "samples seen",
          certificate.paired ? certificate.paired->metric : "loss",
          {series("reference", certificate.reference_losses, 0), series("tuned", certificate.candidate_losses, 2)}};
}

// First what changed, then everything else.
std::string changed_html(const measure::TuneCard& card) {
  const measure::Ledger& ledger = card.ledger;
  const auto count =
      std::count_if(ledger.entries.begin(), ledger.entries.end(), [](const auto& e) { return e.in_best; });
  if (!ledger.best || count == 0) return "<h2>Nothing was changed</h2>";
  std::string out = fmt::format(
      "<h2>{:.2f}×: {} setting{} changed</h2><p>{:.1f} instead of {:.1f} samples/s; a fresh run "
      "should find {:.2f} to {:.2f} times the speed.",
      ledger.best->ratio, count, count == 1 ? "" : "s", ledger.best_samples_per_second,
      ledger.baseline_samples_per_second, card.promised_ratio.low, card.promised_ratio.high);
  if (ledger.time_to_loss)
    out += fmt::format(" To the reference's loss: {:.2f}× ({:.2f} to {:.2f}).", ledger.time_to_loss->ratio,
                       ledger.time_to_loss->interval.low, ledger.time_to_loss->interval.high);
  HtmlTable table({{"setting", "switch"}, {"before", ""}, {"after", ""}});
  for (const measure::LedgerEntry& entry : ledger.entries)
    if (entry.in_best)
      table.add({"<code>" + draw::escape_html(entry.field) + "</code>", draw::escape_html(entry.from),
                 draw::escape_html(entry.to)});
  return out + "</p>" + table.markup();
}

}  // namespace

std::vector<LedgerLine> ledger_lines(const measure::Ledger& ledger) {
  std::vector<LedgerLine> lines;
  for (const measure::LedgerEntry& entry : ledger.entries) {
    LedgerLine line;
    line.name = entry_name(entry);
    line.claim = entry.claim;
    if (entry.predicted) line.predicted = gain_text(*entry.predicted);
    if (entry.predicted && entry.predicted_interval)
      line.predicted += fmt::format(" ({} to {})", gain_text(entry.predicted_interval->low),
                                    gain_text(entry.predicted_interval->high));
    if (entry.add_one_in) line.measured = estimate_text(*entry.add_one_in);
    if (entry.leave_one_out) {
      if (!line.measured.empty()) line.measured += ", ";
      line.measured += "in the best " + estimate_text(*entry.leave_one_out);
      if (const auto interaction = entry.interaction())
        line.measured += fmt::format(" (interaction {:.2f})", *interaction);
    }
    // Predicted, then measured.
    const auto both = [](const std::optional<double>& predicted,
                         const std::optional<measure::RatioEstimate>& measured) {
      std::string text;
      if (predicted) text = fmt::format("{:.2f} predicted", *predicted);
      if (measured)
        text += fmt::format("{}{:.2f} ({:.2f} to {:.2f}) measured", text.empty() ? "" : ", ", measured->ratio,
                            measured->interval.low, measured->interval.high);
      return text;
    };
    line.worth = both(entry.predicted_efficiency, entry.efficiency);
    line.time_to_loss = both(entry.predicted_time_to_loss, entry.time_to_loss);
    line.verdict = measure::ledger_verdict_name(entry.verdict);
    if (!entry.reason.empty()) line.verdict += ": " + entry.reason;
    line.in_best = entry.in_best;
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string tuned_html(const measure::TuneCard& card) {
  std::string out = changed_html(card) + "<p>" + draw::escape_html(break_even_sentence(card)) + "</p><p>" +
                    draw::escape_html(memory_sentence(card)) + "</p>";
  if (const IntervalChart chart = ledger_chart(card.ledger); !chart.bars.empty()) out += draw_intervals(chart);
  const std::vector<Column> columns = {
      {"switch", "switch"},       {"claim of a guide", ""}, {"predicted", "n"}, {"measured here", "n"},
      {"a sample is worth", "n"}, {"time to loss", "n"},    {"verdict", "why"}, {"kept", ""}};
  HtmlTable tried(columns), untried(columns);
  for (const LedgerLine& line : ledger_lines(card.ledger))
    (line.measured.empty() ? untried : tried)
        .add({"<code>" + draw::escape_html(line.name) + "</code>", draw::escape_html(line.claim), line.predicted,
              line.measured, line.worth, line.time_to_loss, draw::escape_html(line.verdict),
              line.in_best ? "yes" : ""});
  if (!tried.empty()) out += tried.markup();
  if (!untried.empty())
    out += fmt::format("<details><summary>{} switches that were not tried</summary>", untried.size()) +
           untried.markup() + "</details>";
  if (card.certificate) {
    out += fmt::format("<h2>Certificate: {}</h2><p>{}</p>", measure::certificate_kind_name(card.certificate->kind),
                       draw::escape_html(card.certificate->reason));
    out += draw_lines(certificate_chart(*card.certificate));
  }
  for (const std::string& note : card.notes) out += "<p class=\"dim\">" + draw::escape_html(note) + "</p>";
  return out;
}

std::string tuned_text(const measure::TuneCard& card, int width) {
  std::string out = wrap_text(break_even_sentence(card), width) + wrap_text(memory_sentence(card), width) + "\n";
  for (const LedgerLine& line : ledger_lines(card.ledger)) {
    std::string name = wrap_text(line.name, width, "  ");
    if (line.in_best) name[0] = '*';
    out += name;
    out += wrap_text(fmt::format("claim {} | predicted {} | measured {} | {}", line.claim.empty() ? "-" : line.claim,
                                 line.predicted.empty() ? "-" : line.predicted,
                                 line.measured.empty() ? "-" : line.measured, line.verdict),
                     width, "    ");
    if (!line.worth.empty())
      out += wrap_text(fmt::format("a sample is worth {} | time to loss {}", line.worth,
                                   line.time_to_loss.empty() ? "-" : line.time_to_loss),
                       width, "    ");
  }
  if (card.certificate)
    out += "\n" + wrap_text(fmt::format("Certificate: {}. {}", measure::certificate_kind_name(card.certificate->kind),
                                        card.certificate->reason),
                            width);
  for (const std::string& note : card.notes) out += wrap_text("Note: " + note, width);
  return out;
}

}  // namespace redline::report
