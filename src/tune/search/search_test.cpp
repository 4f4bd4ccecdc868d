#include "tune/search/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "core/philox.h"

namespace redline::tune {
namespace {

using SpeedOf = std::function<double(const Setting&)>;  // samples per second; <= 0 fails

struct Outcome {
  Setting best;
  double spent = 0;
};

Outcome run_search(Search& search, const SpeedOf& speed, double noise, uint64_t seed, double seconds_per_block = 1) {
  KeyedStream draw(seed, 0, 0, 9);
  Outcome outcome;
  while (const auto trial = search.next(outcome.spent)) {
    const auto time = [&](const Setting& setting) -> std::optional<double> {
      const double s = speed(setting);
      if (s <= 0) return std::nullopt;
      return std::exp(noise * draw.normal()) / s;
    };
    search.report(time(trial->a), time(trial->b), "out of memory");
    outcome.spent += seconds_per_block;
  }
  outcome.best = search.best();
  return outcome;
}

std::vector<Candidate> make_candidates() {
  return {{"workers 1", {{"workers", "1"}}, 0.2, 1e9, config::Effect::Nothing, "workers"},
          {"workers 2", {{"workers", "2"}}, 0.3, 1e9, config::Effect::Nothing, "workers"},
          {"buckets", {{"buckets", "true"}}, 0.5, 1e9, config::Effect::Order, "buckets"},
          {"bf16", {{"precision", "bf16-mixed"}}, 0.4, 1e9, config::Effect::Numerics, "precision"},
          {"log 50", {{"log", "50"}}, 0.01, 0.003, config::Effect::Nothing, "log"}};
}

double plain_speed(const Setting& s) {
  double speed = 100;
  if (s.count("workers")) speed *= s.at("workers") == "1" ? 1.15 : 1.05;
  if (s.count("buckets")) speed *= 1.4;
  if (s.count("precision")) speed *= 0.3;
  return speed;
}

TEST(Search, FindsTheBestCombination) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Search search(make_candidates(), {.budget_seconds = 1000});
    const Outcome outcome = run_search(search, plain_speed, 0.015, seed);
    EXPECT_EQ(setting_text(outcome.best), "buckets=true, workers=1") << seed;
    EXPECT_EQ(search.entries()[3].state, EntryState::NotBetter);
    EXPECT_EQ(search.entries()[4].state, EntryState::Pruned);
    EXPECT_LT(search.entries()[3].alone->interval.high, 1.0);
    EXPECT_DOUBLE_EQ(search.untested_gain(), 0);
  }
}

TEST(Search, WhatIsKnownToFailIsNeverTried) {
  Search search(make_candidates(), {.budget_seconds = 1000});
  search.fail("workers=1", "the process was killed");
  const auto speed = [](const Setting& s) {
    EXPECT_FALSE(s.count("workers") && s.at("workers") == "1");
    return plain_speed(s);
  };
  run_search(search, speed, 0.015, 1);
  const auto failed = std::count_if(search.entries().begin(), search.entries().end(), [](const Entry& e) {
    return e.state == EntryState::Failed && e.note == "the process was killed";
  });
  EXPECT_EQ(failed, 1);
}

TEST(Search, SeesThatTwoSwitchesDoTheSameThing) {
  // Either removes the same bottleneck; together they gain no more.
  const auto speed = [](const Setting& s) { return s.count("workers") || s.count("cache") ? 150.0 : 100.0; };
  std::vector<Candidate> candidates = {{"workers", {{"workers", "1"}}, 0.5, 1e9, config::Effect::Nothing, "w"},
                                       {"cache", {{"cache", "memory"}}, 0.4, 1e9, config::Effect::Nothing, "c"}};
  Search search(candidates, {.budget_seconds = 1000});
  EXPECT_EQ(run_search(search, speed, 0.01, 3).best.size(), 1u);
}

TEST(Search, AShortBudgetIsSpentOnTheWholeFirst) {
  const std::vector<Candidate> candidates = {
      {"batch 8", {{"batch", "8"}}, 0.3, 1e9, config::Effect::Optimisation, "batch"},
      {"batch 16", {{"batch", "16"}}, 0.2, 1e9, config::Effect::Optimisation, "batch"},
      {"buckets", {{"buckets", "true"}}, 0.1, 1e9, config::Effect::Order, "buckets"},
      {"cache", {{"cache", "memory"}}, 0.0, 1e9, config::Effect::Nothing, "cache"}};
  const auto speed = [](const Setting& s) {
    return 100.0 * (s.count("batch") ? (s.at("batch") == "16" ? 1.35 : 1.2) : 1.0) * (s.count("buckets") ? 1.15 : 1.0);
  };
  Search search(candidates, {.budget_seconds = 11});
  EXPECT_EQ(setting_text(run_search(search, speed, 0.01, 2).best), "batch=16, buckets=true");
  EXPECT_TRUE(search.out_of_budget());
  EXPECT_FALSE(search.entries()[0].alone.has_value());
  EXPECT_LT(search.untested_gain(), 0.02);  // each has met the best, or is part of the guess
}

// The speech job of bench/tuner as its grid saw it, on a machine with 8 % noise between blocks and time for 20 of them.
TEST(Search, ANoisyMachineAndAShortBudgetLoseLittle) {
  const std::vector<Candidate> candidates = {
      {"batch 16", {{"batch", "16"}}, 0.09, 1e9, config::Effect::Optimisation, "batch"},
      {"batch 8", {{"batch", "8"}}, 0.08, 1e9, config::Effect::Optimisation, "batch"},
      {"batch 4", {{"batch", "4"}}, 0.05, 1e9, config::Effect::Optimisation, "batch"},
      {"buckets", {{"buckets", "true"}}, 0.05, 1e9, config::Effect::Order, "buckets"},
      {"cache", {{"cache", "memory"}}, 0.03, 1e9, config::Effect::Nothing, "cache"},
      {"workers 1", {{"workers", "1"}}, 0.013, 1e9, config::Effect::Nothing, "workers"},
      {"workers 2", {{"workers", "2"}}, 0.013, 1e9, config::Effect::Nothing, "workers"}};
  const auto speed = [](const Setting& s) {
    const auto value = [&](const char* key) { return s.count(key) ? s.at(key) : std::string("-"); };
    const double batch = value("batch") == "16"  ? 1.12
                         : value("batch") == "8" ? 1.11
                         : value("batch") == "4" ? 1.08
                                                 : 1;
    const double workers = value("workers") == "2" ? 1.06 : value("workers") == "1" ? 1.04 : 1;
    return batch * workers * (s.count("buckets") ? 1.1 : 1.0);
  };
  const double best = 1.12 * 1.1 * 1.06;
  double lost = 0;
  constexpr int kSearches = 200;
  for (uint64_t seed = 0; seed < kSearches; ++seed) {
    Search search(candidates, {.budget_seconds = 20});
    lost += (best / speed(run_search(search, speed, 0.057, seed).best) - 1) / kSearches;
  }
  EXPECT_LT(lost, 0.03);  // doing nothing would lose 30 %
}

// The VAE job of bench/tuner: only the micro-batch matters, and two of its values are 7 % apart.
TEST(Search, TheBestValueMeetsItsNeighboursDirectly) {
  const std::vector<Candidate> candidates = {
      {"micro 16", {{"micro", "16"}}, 0.5, 1e9, config::Effect::Numerics, "batch"},
      {"micro 8", {{"micro", "8"}}, 0.45, 1e9, config::Effect::Numerics, "batch"},
      {"micro 4", {{"micro", "4"}}, 0.3, 1e9, config::Effect::Numerics, "batch"},
      {"workers", {{"workers", "1"}}, 0.0, 1e9, config::Effect::Nothing, "workers"}};
  const auto speed = [](const Setting& s) {
    if (!s.count("micro")) return 1.0;
    return s.at("micro") == "16" ? 1.5 : s.at("micro") == "8" ? 1.4 : 1.25;
  };
  int wrong = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Search search(candidates, {.budget_seconds = 20});
    wrong += run_search(search, speed, 0.057, seed).best.at("micro") != "16";
    ASSERT_TRUE(search.entries()[0].alone.has_value());  // the race of a single guess is its race alone
  }
  EXPECT_LE(wrong, 10);
}

TEST(Search, TimeThatIsLeftDecidesWhatTheNoiseLeftOpen) {
  // Two switches of 6 %, a noise of 14 % between blocks: eight of those show nothing.
  const std::vector<Candidate> candidates = {{"a", {{"a", "1"}}, 0.05, 1e9, config::Effect::Optimisation, "a"},
                                             {"b", {{"b", "1"}}, 0.05, 1e9, config::Effect::Optimisation, "b"}};
  const auto speed = [](const Setting& s) { return (s.count("a") ? 1.06 : 1.0) * (s.count("b") ? 1.06 : 1.0); };
  int found = 0, bounded = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Search search(candidates, {.budget_seconds = 1000});
    found += !run_search(search, speed, 0.1, seed).best.empty();
    Search shorter(candidates, {.budget_seconds = 24});
    if (run_search(shorter, speed, 0.1, seed).best.empty())
      bounded += shorter.untested_gain() > 0.02;
    else
      ++bounded;
  }
  EXPECT_GE(found, 40);
  EXPECT_GE(bounded, 48);  // what is open is said: never "nothing is left"
}

TEST(Search, TheBestIsTakenApartBeforeTheRestIsRacedAlone) {
  // Time for the guess, its parts taken out and alone, not for the others.
  std::vector<Candidate> candidates = {{"batch 8", {{"batch", "8"}}, 0.3, 1e9, config::Effect::Optimisation, "batch"},
                                       {"buckets", {{"buckets", "true"}}, 0.2, 1e9, config::Effect::Order, "buckets"},
                                       {"idle", {{"idle", "true"}}, 0.1, 1e9, config::Effect::Nothing, "idle"}};
  for (int i = 0; i < 10; ++i) {
    const std::string name = "other " + std::to_string(i);
    candidates.push_back({name, {{name, "1"}}, -0.15, 1e9, config::Effect::Nothing, name});
  }
  const auto speed = [](const Setting& s) {
    return 100.0 * (s.count("batch") ? 1.3 : 1.0) * (s.count("buckets") ? (s.count("batch") ? 1.2 : 1.1) : 1.0);
  };
  Search search(candidates, {.budget_seconds = 3 + 3 * 4 + 3 * 4 + 6});
  EXPECT_EQ(setting_text(run_search(search, speed, 0.004, 4).best), "batch=8, buckets=true");
  EXPECT_TRUE(search.out_of_budget());
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(search.entries()[i].alone && search.entries()[i].removed) << i;
    EXPECT_LT(search.entries()[i].removed->interval.high, 1.0) << i;
  }
  // One that was only guessed and does nothing has gone; the race that showed it stays.
  EXPECT_NEAR(search.entries()[2].removed->ratio, 1.0, 0.02);
  EXPECT_FALSE(search.entries().back().alone.has_value());
}

TEST(Search, AShortBudgetTakesTheBestApartBeforeItsNeighboursMeetIt) {
  // Two parts, and neighbours that would take all the time that is left after the guess.
  std::vector<Candidate> candidates = {{"batch 8", {{"batch", "8"}}, 0.3, 1e9, config::Effect::Optimisation, "batch"},
                                       {"buckets", {{"buckets", "true"}}, 0.2, 1e9, config::Effect::Order, "buckets"}};
  for (int i = 0; i < 10; ++i) {
    const std::string name = "other " + std::to_string(i);
    candidates.push_back({name, {{name, "1"}}, -0.01 * i, 1e9, config::Effect::Nothing, name});
  }
  const auto speed = [](const Setting& s) {
    const double parts = (s.count("batch") ? 1.3 : 1.0) * (s.count("buckets") ? 1.2 : 1.0);
    return parts * (s.count("other 3") ? 1.2 : 1.0);
  };
  const auto searched = [&](double budget) {
    Search search(candidates, {.budget_seconds = budget});
    run_search(search, speed, 0.004, 4);
    return search;
  };
  const auto met_best = [](const Search& search) {
    return std::count_if(search.entries().begin(), search.entries().end(), [](const Entry& e) { return e.on_top; });
  };
  const Search brief = searched(3 + 4 + 2 * 4);
  EXPECT_TRUE(brief.entries()[0].removed && brief.entries()[1].removed);
  EXPECT_EQ(met_best(brief), 1);
  // Once it is taken apart, those that waited have their turn, and none twice.
  const Search longer = searched(3 + 4 + 2 * 4 + 14);
  EXPECT_GE(met_best(longer), 4);
  EXPECT_EQ(setting_text(longer.best()), "batch=8, buckets=true, other 3=1");
  const Search long_enough = searched(400);
  EXPECT_EQ(met_best(long_enough), 10);
  EXPECT_EQ(setting_text(long_enough.best()), "batch=8, buckets=true, other 3=1");
}

TEST(Search, NoPairMeetsTwiceAsANeighbour) {
  // A neighbour replaces a part of the guess; after the best is taken apart, that part does not come back to it.
  std::vector<Candidate> candidates = {
      {"batch 8", {{"batch", "8"}}, 0.3, 1e9, config::Effect::Optimisation, "batch"},
      {"batch 16", {{"batch", "16"}}, 0.29, 1e9, config::Effect::Optimisation, "batch"},
      {"buckets", {{"buckets", "true"}}, 0.2, 1e9, config::Effect::Order, "buckets"}};
  for (int i = 0; i < 6; ++i) {
    const std::string name = "other " + std::to_string(i);
    candidates.push_back({name, {{name, "1"}}, -0.01, 1e9, config::Effect::Nothing, name});
  }
  const auto speed = [](const Setting& s) {
    return (s.count("batch") ? (s.at("batch") == "16" ? 1.4 : 1.3) : 1.0) * (s.count("buckets") ? 1.2 : 1.0);
  };
  for (double budget = 8; budget < 60; ++budget) {
    Search search(candidates, {.budget_seconds = budget});
    std::map<std::set<std::string>, int> races;
    double spent = 0;
    while (const auto trial = search.next(spent++)) {
      const bool starts = trial->block == 0 && trial->reason.find("top of the guess") != std::string::npos;
      const std::set<std::string> pair = {setting_text(trial->a), setting_text(trial->b)};
      if (starts) ++races[pair];
      EXPECT_LE(races[pair], 1) << trial->reason << " " << budget;
      search.report(1 / speed(trial->a), 1 / speed(trial->b));
    }
  }
}

TEST(Search, AGuessKnowsWhatPaysOnlyInCompany) {
  std::vector<Candidate> candidates = {
      {"batch 8", {{"batch", "8"}}, 0.10, 1e9, config::Effect::Optimisation, "batch"},
      {"batch 16", {{"batch", "16"}}, 0.08, 1e9, config::Effect::Optimisation, "batch"},
      {"buckets", {{"buckets", "true"}}, 0.01, 1e9, config::Effect::Order, "buckets"},
      {"cache", {{"cache", "memory"}}, 0.03, 1e9, config::Effect::Nothing, "cache"}};
  SearchOptions options{.budget_seconds = 100};
  EXPECT_EQ(setting_text(Search(candidates, options).next(0)->b), "batch=8, cache=memory");
  for (size_t i = 0; i < 3; ++i) candidates[i].shapes_plan = true;
  options.plan_gain = [](const Setting& s) {
    const bool buckets = s.count("buckets") != 0;
    if (!s.count("batch")) return buckets ? 0.01 : 0.0;
    return s.at("batch") == "16" ? (buckets ? 0.21 : 0.08) : (buckets ? 0.2 : 0.1);
  };
  // Buckets on top of eight, and sixteen once they are there.
  EXPECT_EQ(setting_text(Search(candidates, options).next(0)->b), "batch=16, buckets=true, cache=memory");
}

TEST(Search, AGuessThatLosesCostsOneBlock) {
  Search search(make_candidates(), {.budget_seconds = 1000});
  const auto first = search.next(0);
  EXPECT_EQ(setting_text(first->b), "buckets=true, precision=bf16-mixed, workers=2");
  search.report(1.0, 1.2);
  EXPECT_EQ(setting_text(search.next(1)->b), "buckets=true");
  EXPECT_TRUE(search.best().empty());
}

TEST(Search, ASwitchThatLosesAloneMayWinInCompany) {
  // A larger batch pads more than it saves, until buckets have removed the padding.
  const auto speed = [](const Setting& s) {
    const bool buckets = s.count("buckets") != 0, batch = s.count("batch") != 0;
    return 100.0 * (buckets ? 1.3 : 1.0) * (batch ? (buckets ? 1.25 : 0.93) : 1.0);
  };
  const std::vector<Candidate> candidates = {
      {"batch 8", {{"batch", "8"}}, 0.5, 1e9, config::Effect::Optimisation, "batch"},
      {"buckets", {{"buckets", "true"}}, 0.4, 1e9, config::Effect::Order, "buckets"}};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Search search(candidates, {.budget_seconds = 1000});
    EXPECT_EQ(setting_text(run_search(search, speed, 0.015, seed).best), "batch=8, buckets=true") << seed;
    EXPECT_EQ(search.entries()[0].state, EntryState::NotBetter);
    ASSERT_TRUE(search.entries()[0].removed.has_value());
    EXPECT_LT(search.entries()[0].removed->interval.high, 1.0);  // the best without it is slower
  }
}

TEST(Search, AnotherValueOfASwitchReplacesTheOneInTheBest) {
  // Two workers win alone; with the cache one is better.
  const auto speed = [](const Setting& s) {
    const bool cache = s.count("cache") != 0;
    const std::string workers = s.count("workers") ? s.at("workers") : "0";
    return 100.0 * (cache ? 1.3 : 1.0) * (workers == "1" ? (cache ? 1.4 : 1.1) : workers == "2" ? 1.2 : 1.0);
  };
  const std::vector<Candidate> candidates = {
      {"workers 1", {{"workers", "1"}}, 0.3, 1e9, config::Effect::Nothing, "workers"},
      {"workers 2", {{"workers", "2"}}, 0.2, 1e9, config::Effect::Nothing, "workers"},
      {"cache", {{"cache", "memory"}}, 0.1, 1e9, config::Effect::Nothing, "cache"}};
  Search search(candidates, {.budget_seconds = 1000});
  EXPECT_EQ(setting_text(run_search(search, speed, 0.01, 5).best), "cache=memory, workers=1");
}

TEST(Search, WhatIsOnlyForTheLedgerIsNeverKept) {
  Candidate preset{"preset quick", {{"preset", "quick"}}, 0, 1e9, config::Effect::Model, "preset"};
  preset.ledger_only = preset.late = true;
  Search search({preset}, {.budget_seconds = 1000});
  EXPECT_TRUE(run_search(
                  search, [](const Setting& s) { return s.empty() ? 100.0 : 200.0; }, 0.01, 1)
                  .best.empty());
  EXPECT_EQ(search.entries()[0].state, EntryState::Better);
  EXPECT_NEAR(search.entries()[0].alone->ratio, 2.0, 0.1);
}

TEST(Search, AFailedTrialIsAResult) {
  const auto speed = [](const Setting& s) { return s.count("batch") ? 0.0 : plain_speed(s); };
  auto candidates = make_candidates();
  candidates.push_back({"batch 64", {{"batch", "64"}}, 2.0, 1e9, config::Effect::Optimisation, "batch"});
  Search search(candidates, {.budget_seconds = 1000});
  EXPECT_EQ(setting_text(run_search(search, speed, 0.015, 1).best), "buckets=true, workers=1");
  EXPECT_EQ(search.entries().back().state, EntryState::Failed);
  EXPECT_EQ(search.entries().back().note, "out of memory");
}

TEST(Search, AFailureInCompanyKeepsWhatWasSeenAlone) {
  // A larger batch fits alone, not together with buckets.
  const auto speed = [](const Setting& s) {
    if (s.count("batch") && s.count("buckets")) return 0.0;
    return 100.0 * (s.count("batch") ? 1.3 : 1.0) * (s.count("buckets") ? 1.4 : 1.0);
  };
  const std::vector<Candidate> candidates = {
      {"buckets", {{"buckets", "true"}}, 0.5, 1e9, config::Effect::Order, "buckets"},
      {"batch 8", {{"batch", "8"}}, 0.01, 1e9, config::Effect::Optimisation, "batch"}};
  Search search(candidates, {.budget_seconds = 1000});
  EXPECT_EQ(setting_text(run_search(search, speed, 0.01, 1).best), "buckets=true");
  EXPECT_EQ(search.entries()[1].state, EntryState::Better);
  EXPECT_TRUE(search.entries()[1].failed_on_top);
}

TEST(Search, OneThatWasExpectedToLoseMayStillWin) {
  std::vector<Candidate> candidates = {{"fused off", {{"fused", "false"}}, 0, 1e9, config::Effect::Numerics, "fused"}};
  candidates[0].late = candidates[0].unpredicted = true;
  Search search(candidates, {.budget_seconds = 1000});
  const auto speed = [](const Setting& s) { return s.empty() ? 100.0 : 110.0; };
  EXPECT_EQ(setting_text(run_search(search, speed, 0.01, 1).best), "fused=false");
}

TEST(Search, StopsWhenNothingUntestedCanGain) {
  std::vector<Candidate> candidates = make_candidates();
  candidates.push_back({"threads 1", {{"threads", "1"}}, -0.4, 1e9, config::Effect::Numerics, "threads"});
  candidates.back().late = true;
  const auto speed = [](const Setting& s) { return plain_speed(s) * (s.count("threads") ? 0.6 : 1.0); };
  Search search(candidates, {.budget_seconds = 1000});
  run_search(search, speed, 0.015, 1);
  EXPECT_FALSE(search.entries().back().alone.has_value());
  EXPECT_FALSE(search.out_of_budget());
  EXPECT_LT(search.untested_gain(), 0.02);
  SearchOptions full{.budget_seconds = 1000};
  full.full_ledger = true;
  Search complete(candidates, full);
  run_search(complete, speed, 0.015, 1);
  ASSERT_TRUE(complete.entries().back().alone.has_value());
  EXPECT_NEAR(complete.entries().back().alone->ratio, 0.6, 0.05);
}

TEST(Search, WhatNothingPredictsIsNamedWhenTheBudgetEnds) {
  std::vector<Candidate> candidates = make_candidates();
  candidates.push_back({"cache_features", {{"features", "true"}}, 0, 1e9, config::Effect::Nothing, "features"});
  candidates.back().field = "cache_features";
  candidates.back().unpredicted = true;
  Search search(candidates, {.budget_seconds = 3});
  run_search(search, plain_speed, 0.01, 1);
  EXPECT_EQ(search.unknown(), std::vector<std::string>{"cache_features"});
}

TEST(Search, StopsAtTheBudgetWithABestSoFar) {
  Search search(make_candidates(), {.budget_seconds = 4});
  const Outcome outcome = run_search(search, plain_speed, 0.01, 1);
  EXPECT_TRUE(search.out_of_budget());
  EXPECT_LE(outcome.spent, 4);
  EXPECT_EQ(setting_text(outcome.best), "buckets=true");
  EXPECT_GT(search.untested_gain(), 0.3);
}

TEST(Search, AGuessThatWasCutOffStaysOpen) {
  Search search(make_candidates(), {.budget_seconds = 2});
  EXPECT_TRUE(run_search(search, plain_speed, 0.01, 1).best.empty());
  EXPECT_GT(search.untested_gain(), 1.0);  // buckets, workers and bf16 as predicted
}

TEST(Search, NothingToGainNothingChanged) {
  int changed = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Search search({make_candidates()[0]}, {.budget_seconds = 1000});
    changed += !run_search(
                    search, [](const Setting&) { return 100.0; }, 0.03, seed)
                    .best.empty();
  }
  EXPECT_LE(changed, 5);
}

}  // namespace
}  // namespace redline::tune
