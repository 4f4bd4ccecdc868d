// The ledger's words, and how often it claims a gain where there is none.
#include "tune/search/ledger_of_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/philox.h"

namespace redline::tune {
namespace {

using measure::LedgerVerdict;

Candidate make_candidate(const std::string& name, double predicted, double ceiling = 1e9) {
  return {name, {{name, "1"}}, predicted, ceiling, config::Effect::Nothing, name, name, "0", "1"};
}

// Runs a search whose candidates change speed by `gains`, log-normal noise of `noise` per turn.
void run(Search& search, const std::map<std::string, double>& gains, double noise, uint64_t seed, double stays = 0) {
  KeyedStream draw(seed, 0, 0, 4);
  double spent = 0, slow = draw.normal();
  while (const auto trial = search.next(spent)) {
    const auto time = [&](const Setting& setting) -> std::optional<double> {
      double speed = 1;
      for (const auto& [path, value] : setting) {
        if (gains.at(path) <= -1) return std::nullopt;
        speed *= 1 + gains.at(path);
      }
      // What stays is felt by those that change something.
      const double feels = stays > 0 && !setting.empty() ? slow : draw.normal();
      return std::exp(noise * feels) / speed;
    };
    const auto a = time(trial->a), b = time(trial->b);
    search.report(a, b, "out of memory");
    slow = stays * slow + std::sqrt(1 - stays * stays) * draw.normal();
    spent += 1;
  }
}

const measure::LedgerEntry& find(const measure::Ledger& ledger, const std::string& field) {
  for (const auto& entry : ledger.entries)
    if (entry.field == field) return entry;
  throw std::runtime_error(field);
}

TEST(Ledger, SaysWhatWasFoundInTheIssuesWords) {
  std::vector<Candidate> candidates = {make_candidate("faster", 0.2), make_candidate("slower", 0.1),
                                       make_candidate("fails", 0.5), make_candidate("nothing", 0.0),
                                       make_candidate("capped", 0.01, 0.004)};
  Candidate absent = make_candidate("pin_memory", 0);
  absent.not_tried = "there is no device to copy to";
  absent.not_measurable = true;
  candidates.push_back(absent);
  Candidate forbidden = make_candidate("order", 0.4);
  forbidden.not_tried = "needs consent";
  candidates.push_back(forbidden);
  Search search(candidates, {.budget_seconds = 400, .full_ledger = true});
  run(search, {{"faster", 0.3}, {"slower", -0.3}, {"fails", -1}, {"nothing", 0.0}}, 0.005, 2);
  const measure::Ledger ledger = ledger_of(search, {}, search.members());
  EXPECT_EQ(find(ledger, "faster").verdict, LedgerVerdict::Faster);
  EXPECT_TRUE(find(ledger, "faster").in_best);
  EXPECT_NEAR(*find(ledger, "faster").prediction_error_points(), -10, 3);
  EXPECT_EQ(find(ledger, "slower").verdict, LedgerVerdict::Slower);
  EXPECT_EQ(find(ledger, "fails").verdict, LedgerVerdict::Failed);
  EXPECT_EQ(find(ledger, "fails").reason, "out of memory");
  EXPECT_EQ(find(ledger, "nothing").verdict, LedgerVerdict::NoEffect);
  EXPECT_EQ(find(ledger, "capped").verdict, LedgerVerdict::NoEffect);
  EXPECT_EQ(find(ledger, "pin_memory").verdict, LedgerVerdict::NotMeasurable);
  EXPECT_EQ(find(ledger, "order").verdict, LedgerVerdict::NotTried);
  EXPECT_FALSE(find(ledger, "order").in_best);
}

TEST(Ledger, AGuidesClaimStandsBesideItsSwitchAndNotBesideTheWayBack) {
  Candidate back = make_candidate("precision", 0.1);
  back.late = true;
  Search search({make_candidate("num_workers", 0.3), make_candidate("cache", 0.2), back}, SearchOptions());
  const std::vector<task::GuideClaim> claims = {{"num_workers", "0", "4", "+200-400 %"},
                                                {"precision", "", "", "+50-100 %"}};
  const measure::Ledger ledger = ledger_of(search, claims, {});
  EXPECT_EQ(find(ledger, "num_workers").claim, "+200-400 % (0 to 4)");
  EXPECT_EQ(find(ledger, "cache").claim, "");
  EXPECT_EQ(find(ledger, "precision").claim, "");
  EXPECT_EQ(claims[1].text(), "+50-100 %") << "a guide may name no values";
}

TEST(Ledger, AShortBudgetLeavesWideIntervalsAndNoExcuses) {
  Search search({make_candidate("batch", 0.3), make_candidate("buckets", 0.2), make_candidate("workers", 0.0),
                 make_candidate("later", -0.15)},
                {.budget_seconds = 5});
  run(search, {{"batch", 0.3}, {"buckets", 0.2}, {"workers", 0.0}, {"later", 0.0}}, 0.01, 2);
  const measure::Ledger ledger = ledger_of(search, {}, search.members());
  for (const measure::LedgerEntry& entry : ledger.entries) {
    ASSERT_TRUE(entry.add_one_in && entry.leave_one_out && entry.predicted_interval) << entry.field;
    EXPECT_TRUE(entry.predicted_interval->contains(*entry.predicted)) << entry.field;
    if (entry.verdict == LedgerVerdict::Undecided) {
      EXPECT_NE(entry.reason.find("still possible"), std::string::npos) << entry.field << entry.reason;
    }
  }
  EXPECT_FALSE(find(ledger, "later").measured.has_value());
  EXPECT_NE(find(ledger, "later").reason.find("prediction alone"), std::string::npos);
  EXPECT_TRUE(ledger.entries[0].in_best && ledger.entries[1].in_best);  // the kept ones first
}

TEST(Ledger, AProofTooLongForTheBudgetIsLeftToGain) {
  Candidate large = make_candidate("batch", 0.3);
  large.not_tried = "its proof alone takes too long";
  large.over_budget = true;
  Search search({make_candidate("other", 0.2), large}, SearchOptions());
  run(search, {{"other", 0.2}}, 0.005, 3);
  const measure::Ledger ledger = ledger_of(search, {}, search.members());
  EXPECT_EQ(find(ledger, "batch").verdict, LedgerVerdict::NotTried);
  EXPECT_EQ(find(ledger, "batch").reason, "its proof alone takes too long");
  EXPECT_GT(*ledger.bound_left, 1.2);  // so that a card never answers a longer budget
}

// Of ledgers whose switches do nothing, those in which any row claims a gain, with noise that stays from block to
// block.
TEST(Ledger, FalseGainsAreRareOverAllRowsTogether) {
  for (const double stays : {0.0, 0.6}) {
    int claims = 0;
    constexpr int kLedgers = 60;
    for (uint64_t seed = 0; seed < kLedgers; ++seed) {
      std::map<std::string, double> gains;
      std::vector<Candidate> candidates;
      for (int i = 0; i < 8; ++i) {
        gains["s" + std::to_string(i)] = 0;
        candidates.push_back(make_candidate("s" + std::to_string(i), 0.1));  // and all predicted to gain
      }
      Search search(candidates, {.budget_seconds = 60, .full_ledger = true});
      run(search, gains, 0.03, 100 + seed, stays);
      const measure::Ledger ledger = ledger_of(search, {}, search.members());
      claims += std::any_of(ledger.entries.begin(), ledger.entries.end(),
                            [](const auto& entry) { return entry.verdict == LedgerVerdict::Faster; });
    }
    EXPECT_LE(claims, 3) << stays;
  }
}

// The whole decision: search, then fresh blocks that must be clear of 1.
TEST(Ledger, ATuningClaimsNoGainWhereThereIsNone) {
  int claims = 0;
  constexpr int kRuns = 60;
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    std::map<std::string, double> gains;
    std::vector<Candidate> candidates;
    for (int i = 0; i < 10; ++i) {
      gains["s" + std::to_string(i)] = 0;
      candidates.push_back(make_candidate("s" + std::to_string(i), 0.1));
    }
    Search search(candidates, {.budget_seconds = 40});
    run(search, gains, 0.04, 1000 + seed, 0.6);
    if (search.best().empty()) continue;
    KeyedStream draw(seed, 1, 0, 4);
    std::vector<double> a, b;
    double slow = draw.normal();
    for (int i = 0; i < 8; ++i) {
      a.push_back(std::exp(0.04 * draw.normal()));
      b.push_back(std::exp(0.04 * slow));
      slow = 0.6 * slow + 0.8 * draw.normal();
    }
    claims += measure::compare_blocks(a, b, 0.95, 1, search.correlation()).interval.low > 1;
  }
  EXPECT_LE(claims, kRuns * 5 / 100);
}

}  // namespace
}  // namespace redline::tune
