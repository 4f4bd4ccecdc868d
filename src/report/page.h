// What a report shows: the records and judgements of one or more runs, gathered by app. Rendering only thins and
// formats; it computes nothing new.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "doctor/compare_runs.h"
#include "doctor/operators.h"
#include "doctor/rank_view.h"
#include "doctor/verdict.h"
#include "measure/run_record.h"
#include "measure/tune_card.h"

namespace redline::report {

struct RunPart {
  std::string name;  // as the user named it, usually the directory
  measure::RunRecord record;
  doctor::Observation seen;
  std::optional<doctor::Diagnosis> diagnosis;
  std::vector<doctor::OperatorLine> operators;  // slowest first; empty when nobody looked
  std::optional<doctor::RankView> ranks;        // when there were several
  std::optional<measure::TuneCard> card;        // when the run was tuned: ledger, certificate, break-even
};

struct Page {
  std::string summary;        // one sentence, first thing on the page
  std::vector<RunPart> runs;  // the first is "before" when there are several
  std::optional<doctor::RunComparison> comparison;
};

// The sentence for a page without a better one.
std::string default_summary(const Page& page);

std::string render_html(const Page& page);
// For a terminal of the given width.
std::string render_text(const Page& page, int width);
// With "schema_version"; what scripts read.
std::string render_json(const Page& page);

}  // namespace redline::report
