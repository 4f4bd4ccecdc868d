// The ledger's words, and how often it claims a gain where there is none.
#include "tune/search/ledger_of_search.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/philox.h"

namespace redline::tune {
namespace {

using measure::LedgerVerdict;

Candidate make_candidate(const std::string& name, double predicted, double ceiling = 1e9) {
  return {name, {{name, "1"}}, predicted, ceiling, config::Effect::Nothing, name, name, "0", "1"};
}

// Runs a search whose candidates change speed by `gains`, log-normal noise of `noise` per turn.
void run(Search& search, const std::map<std::string, double>& gains, double noise, uint64_t seed) {
  KeyedStream draw(seed, 0, 0, 4);
  double spent = 0;
  while (const auto trial = search.next(spent)) {
    const auto time = [&](const Setting& setting) -> std::optional<double> {
      double speed = 1;
      for (const auto& [path, value] : setting) {
        if (gains.at(path) <= -1) return std::nullopt;
        speed *= 1 + gains.at(path);
      }
      return std::exp(noise * draw.normal()) / speed;
    };
    search.report(time(trial->a), time(trial->b), "out of memory");
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
  Search search(candidates, SearchOptions());
  run(search, {{"faster", 0.3}, {"slower", -0.3}, {"fails", -1}, {"nothing", 0.0}}, 0.01, 2);
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

TEST(Ledger, WhatHadNoTimeAloneSaysWhatItDidInCompany) {
  Search search({make_candidate("batch", 0.3), make_candidate("buckets", 0.2), make_candidate("workers", 0.0),
                 make_candidate("later", -0.15)},
                {.budget_seconds = 3 + 4 + 6});
  run(search, {{"batch", 0.3}, {"buckets", 0.2}, {"workers", 0.0}, {"later", 0.0}}, 0.005, 2);
  const measure::Ledger ledger = ledger_of(search, {}, search.members());
  for (const char* kept : {"batch", "buckets"}) {
    EXPECT_EQ(find(ledger, kept).verdict, LedgerVerdict::InCompany) << kept;
    ASSERT_TRUE(find(ledger, kept).leave_one_out.has_value()) << kept;
    EXPECT_FALSE(find(ledger, kept).interaction().has_value()) << kept;
  }
  EXPECT_NEAR(find(ledger, "batch").leave_one_out->ratio, 1.3, 0.03);
  EXPECT_EQ(find(ledger, "workers").verdict, LedgerVerdict::InCompany);
  EXPECT_NE(find(ledger, "workers").reason.find("on top of the first guess"), std::string::npos);
  EXPECT_EQ(find(ledger, "later").verdict, LedgerVerdict::NotTried);
  EXPECT_EQ(ledger.entries[2].field, "workers");  // after what is kept, before what was not tried
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

TEST(Ledger, APartWithoutWhichTheRestDoesNotRunIsKeptAndSaysSo) {
  Search search({make_candidate("large", 0.3), make_candidate("small_numbers", 0.3)}, {.budget_seconds = 9});
  double spent = 0;
  while (const auto trial = search.next(spent++)) {
    const auto time = [&](const Setting& s) -> std::optional<double> {
      if (s.count("large") && !s.count("small_numbers")) return std::nullopt;
      return s.count("large") ? 0.5 : s.count("small_numbers") ? 0.8 : 1.0;
    };
    search.report(time(trial->a), time(trial->b), "out of memory");
  }
  const measure::Ledger ledger = ledger_of(search, {}, search.members());
  const measure::LedgerEntry& part = find(ledger, "small_numbers");
  EXPECT_TRUE(part.in_best);
  EXPECT_EQ(part.verdict, LedgerVerdict::InCompany);
  EXPECT_EQ(part.reason, "the rest of the best does not run without it: out of memory");
}

TEST(Ledger, FalseGainsAreRare) {
  int claims = 0, entries = 0;
  for (double noise : {0.01, 0.03, 0.08})
    for (uint64_t seed = 0; seed < 60; ++seed) {
      std::map<std::string, double> gains;
      std::vector<Candidate> candidates;
      for (int i = 0; i < 8; ++i) {
        gains["s" + std::to_string(i)] = 0;
        candidates.push_back(make_candidate("s" + std::to_string(i), 0.1));
      }
      Search search(
          candidates,
          {.budget_seconds = 1e6, .least_gain = 0.02, .race = {}, .leave_one_out = true, .hopeless_ratio = 0.85});
      run(search, gains, noise, 100 + seed);
      for (const auto& entry : ledger_of(search, {}, search.members()).entries) {
        claims += entry.verdict == LedgerVerdict::Faster;
        ++entries;
      }
    }
  EXPECT_LE(claims, entries * 5 / 100) << entries;
}

// The whole decision: search, then fresh blocks that must be clear of 1.
TEST(Ledger, ATuningClaimsNoGainWhereThereIsNone) {
  int claims = 0;
  constexpr int kRuns = 200;
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    std::map<std::string, double> gains;
    std::vector<Candidate> candidates;
    for (int i = 0; i < 10; ++i) {
      gains["s" + std::to_string(i)] = 0;
      candidates.push_back(make_candidate("s" + std::to_string(i), 0.1));
    }
    Search search(candidates, SearchOptions());
    run(search, gains, 0.04, 1000 + seed);
    if (search.best().empty()) continue;
    KeyedStream draw(seed, 1, 0, 4);
    std::vector<double> a, b;
    for (int i = 0; i < 8; ++i) {
      a.push_back(std::exp(0.04 * draw.normal()));
      b.push_back(std::exp(0.04 * draw.normal()));
    }
    claims += measure::compare_blocks(a, b).interval.low > 1;
  }
  EXPECT_LE(claims, kRuns * 5 / 100);
}

// Promises of 1.4x that a fresh run kept, of 400, on a machine whose speed wanders by `drift` (log) from one moment to
// the next: a slower machine makes the ratio larger by 0.45 of that.
int kept_promises(double drift, bool knows_the_machine) {
  int inside = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    KeyedStream draw(seed, 2, 0, 4);
    const auto blocks = [&] {
      const double slow = drift * draw.normal();
      std::vector<double> a, b;
      for (int i = 0; i < 8; ++i) {
        a.push_back(std::exp(slow + 0.05 * draw.normal()));
        b.push_back(std::exp(0.55 * slow + 0.05 * draw.normal()) / 1.4);
      }
      return measure::compare_blocks(a, b);
    };
    std::vector<double> reference;
    for (int i = 0; knows_the_machine && i < 20; ++i)
      reference.push_back(std::exp(drift * draw.normal() + 0.05 * draw.normal()));
    inside += promised_interval(blocks(), reference).contains(blocks().ratio);
  }
  return inside;
}

TEST(Ledger, APromiseCoversAFreshRun) {
  EXPECT_GE(kept_promises(0, false), 360);
  EXPECT_GE(kept_promises(0, true), 360);
  EXPECT_GE(kept_promises(0.15, true), 360);
  EXPECT_LT(kept_promises(0.15, false), 340);  // control: the blocks alone know nothing of it
}

TEST(Ledger, APromiseCoversWhatWasSeenBefore) {
  const measure::RatioEstimate confirmed{1.8, {1.75, 1.85}, 8}, earlier{1.5, {1.45, 1.55}, 8};
  const measure::Interval alone = promised_interval(confirmed, {}), both = promised_interval(confirmed, {}, earlier);
  EXPECT_FALSE(alone.contains(1.5));
  EXPECT_TRUE(both.contains(1.5) && both.contains(1.8));
  EXPECT_NEAR(std::sqrt(both.low * both.high), std::sqrt(1.5 * 1.8), 0.02);
}

}  // namespace
}  // namespace redline::tune
