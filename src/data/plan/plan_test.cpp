#include "data/plan/plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/philox.h"
#include "core/time.h"
#include "data/plan/length_buckets.h"
#include "data/plan/shuffle.h"

namespace redline::data {
namespace {

// Log-normal-like lengths, a function of the index alone.
double test_length(int64_t i) {
  KeyedStream stream(1, 2, static_cast<uint64_t>(i), 3);
  return 1.0 + 9.0 * stream.uniform() * stream.uniform();
}

PlanSource test_source(int64_t size, int locality_size = 0) {
  PlanSource source{size, test_length, {}, 77};
  for (int64_t i = 0; i < size && locality_size > 0; ++i)
    source.locality.push_back(static_cast<int32_t>(i / locality_size));
  return source;
}

std::vector<int64_t> flat(const EpochPlan& plan) {
  std::vector<int64_t> samples;
  for (const auto& group : plan.groups) {
    for (uint32_t entry : plan.of(group)) samples.push_back(plan.sample(entry));
  }
  return samples;
}

std::multiset<int64_t> as_set(const EpochPlan& plan) {
  const auto samples = flat(plan);
  return {samples.begin(), samples.end()};
}

TEST(Shuffle, IsAPermutationAndDependsOnEveryPartOfItsKey) {
  std::vector<uint32_t> first(1000);
  std::iota(first.begin(), first.end(), 0u);
  auto second = first, third = first, fourth = first;
  shuffle(std::span(first), PlanStream(1, 0, 0, PlanDraw::Samples));
  shuffle(std::span(second), PlanStream(1, 0, 0, PlanDraw::Samples));
  shuffle(std::span(third), PlanStream(1, 1, 0, PlanDraw::Samples));
  shuffle(std::span(fourth), PlanStream(1, 0, 0, PlanDraw::Groups));
  EXPECT_EQ(first, second);
  EXPECT_NE(first, third);
  EXPECT_NE(first, fourth);
  std::sort(first.begin(), first.end());
  for (uint32_t i = 0; i < 1000; ++i) EXPECT_EQ(first[i], i);
}

// Chi-squared over where element 0 of 8 ends: 8 cells, 80,000 draws; 24.3 is the 0.999 quantile at 7 degrees of
// freedom.
TEST(Shuffle, IsUnbiased) {
  std::vector<int> where(8, 0);
  for (uint64_t salt = 0; salt < 80'000; ++salt) {
    std::vector<uint32_t> values{0, 1, 2, 3, 4, 5, 6, 7};
    shuffle(std::span(values), PlanStream(5, 0, salt, PlanDraw::Samples));
    ++where[static_cast<size_t>(std::find(values.begin(), values.end(), 0u) - values.begin())];
  }
  double chi = 0;
  for (int count : where) chi += (count - 10'000.0) * (count - 10'000.0) / 10'000.0;
  EXPECT_LT(chi, 24.3);
}

TEST(PlanStream, IsPhilox) {
  // The blocked generator draws what the plain one does for the same key and counters.
  PlanStream stream(3, 1, 4, PlanDraw::Groups);
  const uint64_t key = mix_key(mix_key(3, 1), static_cast<uint64_t>(PlanDraw::Groups));
  const uint64_t identity = mix_key(4, mix_key(static_cast<uint64_t>(PlanDraw::Groups), key));
  for (uint32_t block = 0; block < 300; ++block) {
    const PhiloxBlock expected =
        philox4x32_10({block, 0, static_cast<uint32_t>(identity), static_cast<uint32_t>(identity >> 32)},
                      {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
    for (uint32_t word : expected) ASSERT_EQ(stream.next(), word);
  }
}

TEST(LengthBuckets, AreExactQuantiles) {
  std::vector<float> lengths;
  std::vector<uint32_t> kept;
  for (uint32_t i = 0; i < 10'007; ++i) {
    lengths.push_back(static_cast<float>(i % 3 == 0 ? 0.0 : test_length(i)));
    if (i % 5 != 0) kept.push_back(i);
  }
  std::vector<float> sorted;
  for (uint32_t i : kept) sorted.push_back(lengths[i]);
  std::sort(sorted.begin(), sorted.end());
  std::vector<double> expected;
  for (size_t b = 1; b < 12; ++b) expected.push_back(sorted[b * sorted.size() / 12]);
  expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
  const auto edges = quantile_edges(lengths, kept, 12);
  EXPECT_EQ(edges, expected);
  const auto numbers = bucket_numbers(lengths, edges);
  for (size_t i = 0; i < lengths.size(); ++i) {
    ASSERT_EQ(numbers[i],
              std::upper_bound(edges.begin(), edges.end(), static_cast<double>(lengths[i])) - edges.begin());
  }
}

TEST(Plan, WithoutShuffleIsTheOrderOfTheSource) {
  const Planner planner({.batch_size = 4, .groups_per_step = 2}, test_source(10));
  const auto plan = planner.epoch(0);
  EXPECT_EQ(flat(*plan), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  ASSERT_EQ(plan->groups.size(), 3u);
  EXPECT_EQ(plan->groups[2].size, 2u);
  EXPECT_EQ(plan->num_steps(), 2);
  EXPECT_EQ(plan->step(1).size(), 1u) << "the last, uneven accumulation group is a step too";
}

TEST(Plan, DropLastDropsOnlyTheIncompleteBatch) {
  const Planner planner({.drop_last = true, .batch_size = 4, .groups_per_step = 2}, test_source(14));
  const auto plan = planner.epoch(0);
  EXPECT_EQ(plan->groups.size(), 3u);
  EXPECT_EQ(plan->num_steps(), 2);
  EXPECT_EQ(plan->num_dropped, 2);
}

TEST(Plan, EpochsDifferAndRepeatThemselves) {
  const Planner planner({.seed = 9, .shuffle = true, .batch_size = 8}, test_source(1000));
  EXPECT_EQ(flat(*planner.epoch(3)), flat(*planner.epoch(3)));
  EXPECT_NE(flat(*planner.epoch(3)), flat(*planner.epoch(4)));
  EXPECT_EQ(as_set(*planner.epoch(3)), as_set(*planner.epoch(4)));
  const Planner other({.seed = 10, .shuffle = true, .batch_size = 8}, test_source(1000));
  EXPECT_NE(flat(*planner.epoch(3)), flat(*other.epoch(3)));
}

TEST(Plan, FilterCountsWhatItLeavesOut) {
  PlanSource source{6, {}, {}, 1};
  source.length = [](int64_t i) { return std::vector<double>{0.5, 1.0, 5.0, 60.0, 60.5, NAN}[static_cast<size_t>(i)]; };
  const Planner planner({.batch_size = 2, .min_length = 1.0, .max_length = 60.0}, source);
  EXPECT_EQ(planner.filtered().total, 6);
  EXPECT_EQ(planner.filtered().kept, 4);
  EXPECT_EQ(planner.filtered().too_short, 1);
  EXPECT_EQ(planner.filtered().too_long, 1);
  EXPECT_EQ(planner.filtered().unknown, 1) << "a sample of unknown length is kept, so that reading names it";
  EXPECT_EQ(flat(*planner.epoch(0)), (std::vector<int64_t>{1, 2, 3, 5}));
  source.size = 5;
  EXPECT_THROW(Planner({.batch_size = 2, .min_length = 100.0}, source), DataError);
}

TEST(Plan, LengthsAreNotAskedForWhenNothingNeedsThem) {
  PlanSource source{100, [](int64_t) -> double { throw InternalError("asked"); }, {}, 1};
  EXPECT_NO_THROW(Planner({.shuffle = true, .batch_size = 4, .cut_length = 50.0}, source).epoch(0));
  EXPECT_THROW(Planner({.shuffle = true, .batch_size = 4, .num_buckets = 4}, source), InternalError);
}

struct BucketCase {
  const char* name;
  PlanSettings settings;
  int locality;
};

class PlanBuckets : public testing::TestWithParam<BucketCase> {};

// Every sample exactly once, groups of the right size and alike in length, whatever the mode.
TEST_P(PlanBuckets, CoverTheDataOnceInGroupsOfLikeLength) {
  const auto& [name, settings, locality] = GetParam();
  const Planner planner(settings, test_source(5000, locality));
  const Planner plain({.seed = settings.seed, .shuffle = true, .batch_size = 16}, test_source(5000));
  const auto padding = [](const EpochPlan& plan) {
    double real = 0, padded = 0;
    for (const auto& group : plan.groups) {
      double longest = 0;
      for (uint32_t e : plan.of(group))
        longest = std::max(longest, test_length(plan.sample(e))), real += test_length(plan.sample(e));
      padded += longest * group.size;
    }
    return 1.0 - real / padded;
  };
  for (int64_t epoch : {0, 1}) {
    const auto plan = planner.epoch(epoch);
    std::vector<int64_t> all(5000);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(as_set(*plan), std::multiset<int64_t>(all.begin(), all.end()));
    size_t small = 0;
    for (const auto& group : plan->groups) {
      if (settings.batch_size > 0) {
        EXPECT_LE(group.size, static_cast<uint32_t>(settings.batch_size));
      }
      if (settings.group_length == 0.0 && group.size < 16) ++small;
      if (settings.group_length > 0.0 && group.size > 1) {
        double longest = 0;
        for (uint32_t e : plan->of(group)) longest = std::max(longest, test_length(plan->sample(e)));
        EXPECT_LE(longest * group.size, settings.group_length * (1 + 1e-6));
      }
    }
    EXPECT_LE(small, 1u) << "leftovers of buckets share groups";
    EXPECT_LT(padding(*plan), 0.5 * padding(*plain.epoch(epoch)));
    // Randomness between buckets: neighbouring groups are not sorted by length.
    int rising = 0;
    for (size_t g = 1; g < plan->groups.size(); ++g) {
      rising += test_length(plan->sample(plan->of(plan->groups[g])[0])) >
                test_length(plan->sample(plan->of(plan->groups[g - 1])[0]));
    }
    EXPECT_NEAR(static_cast<double>(rising) / static_cast<double>(plan->groups.size()), 0.5, 0.1);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Modes, PlanBuckets,
    testing::Values(
        BucketCase{"count", {.seed = 1, .shuffle = true, .batch_size = 16, .num_buckets = 8}, 0},
        BucketCase{
            "edges", {.seed = 1, .shuffle = true, .batch_size = 16, .bucket_edges = {1.5, 2, 2.5, 3, 4, 5, 7}}, 0},
        BucketCase{"seconds", {.seed = 1, .shuffle = true, .batch_size = 0, .num_buckets = 8, .group_length = 60.0}, 0},
        BucketCase{"both", {.seed = 1, .shuffle = true, .batch_size = 16, .num_buckets = 8, .group_length = 90.0}, 0},
        BucketCase{"window",
                   {.seed = 1, .shuffle = true, .batch_size = 16, .num_buckets = 8, .window_locality_groups = 10},
                   100}),
    [](const auto& test) { return test.param.name; });

TEST(Plan, BucketsWithEqualLengthsCollapse) {
  PlanSource source{100, [](int64_t) { return 3.0; }, {}, 1};
  const Planner planner({.shuffle = true, .batch_size = 10, .num_buckets = 8}, source);
  EXPECT_EQ(planner.bucket_edges().size(), 1u);
  EXPECT_EQ(planner.epoch(0)->groups.size(), 10u);
}

TEST(Plan, DropLastWithBucketsDropsLessThanOneBatch) {
  const Planner planner({.shuffle = true, .drop_last = true, .batch_size = 16, .num_buckets = 12}, test_source(1003));
  const auto plan = planner.epoch(0);
  EXPECT_EQ(plan->num_dropped, 1003 % 16);
  EXPECT_EQ(plan->groups.size(), 62u);
}

TEST(Plan, WindowsKeepLocalityGroupsTogether) {
  const Planner planner({.seed = 4, .shuffle = true, .batch_size = 10, .window_locality_groups = 2},
                        test_source(1000, 50));
  const auto samples = flat(*planner.epoch(0));
  std::set<int64_t> windows_seen;
  bool inside_order = true;
  for (size_t w = 0; w < 10; ++w) {
    std::set<int64_t> groups;
    for (size_t i = w * 100; i < (w + 1) * 100; ++i) {
      groups.insert(samples[i] / 50);
      if (i > w * 100) inside_order &= samples[i] > samples[i - 1];
    }
    EXPECT_EQ(groups.size(), 2u) << "window " << w;
    windows_seen.insert(groups.begin(), groups.end());
  }
  EXPECT_EQ(windows_seen.size(), 20u);
  EXPECT_FALSE(inside_order);
  EXPECT_NE(planner.hash(),
            Planner({.seed = 4, .shuffle = true, .batch_size = 10, .window_locality_groups = 3}, test_source(1000, 50))
                .hash());
}

TEST(Plan, SampleWindowsAreATarShuffleBuffer) {
  const Planner planner({.seed = 4, .shuffle = true, .batch_size = 10, .window_samples = 64}, test_source(1000, 125));
  const auto samples = flat(*planner.epoch(1));
  EXPECT_EQ(std::set<int64_t>(samples.begin(), samples.end()).size(), 1000u);
  std::set<int64_t> first_shards;
  for (size_t i = 0; i < 64; ++i) first_shards.insert(samples[i] / 125);
  EXPECT_EQ(first_shards.size(), 1u) << "a window of 64 lies within one shard of 125";
}

PlanSettings three_parts() {
  PlanSettings settings{.seed = 2, .shuffle = true, .batch_size = 5};
  settings.part_sizes = {100, 60, 40};
  return settings;
}

int part_of(int64_t sample) { return sample < 100 ? 0 : sample < 160 ? 1 : 2; }

TEST(Plan, StaticBucketsFollowTheirStrategy) {
  PlanSettings settings = three_parts();
  settings.parts_are_buckets = true;
  settings.part_batch_sizes = {9, 6, 3};  // bucketing_batch_size: 3 with three buckets
  const auto parts_in_order = [](const EpochPlan& plan) {
    std::vector<int> parts;
    for (const auto& group : plan.groups) {
      std::set<int> inside;
      for (uint32_t e : plan.of(group)) inside.insert(part_of(plan.sample(e)));
      EXPECT_EQ(inside.size(), 1u) << "no group mixes static buckets";
      if (parts.empty() || parts.back() != *inside.begin()) parts.push_back(*inside.begin());
    }
    return parts;
  };
  settings.part_order = PartOrder::FixedOrder;
  const Planner fixed(settings, test_source(200));
  EXPECT_EQ(parts_in_order(*fixed.epoch(0)), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(fixed.epoch(0)->groups[0].size, 9u);
  EXPECT_EQ(fixed.epoch(0)->groups.back().size, 1u);
  settings.part_order = PartOrder::SyncedRandomized;
  const Planner synced(settings, test_source(200));
  std::set<std::vector<int>> orders;
  for (int64_t e = 0; e < 20; ++e) orders.insert(parts_in_order(*synced.epoch(e)));
  EXPECT_GT(orders.size(), 2u);
  for (const auto& order : orders) EXPECT_EQ(order.size(), 3u) << "one bucket after the other";
  settings.part_order = PartOrder::FullyRandomized;
  EXPECT_GT(parts_in_order(*Planner(settings, test_source(200)).epoch(0)).size(), 5u);
  settings.part_weights = {1, 2, 1};
  EXPECT_EQ(flat(*Planner(settings, test_source(200)).epoch(0)).size(), 260u);
  settings.part_weights = {1, 2};
  EXPECT_THROW(Planner(settings, test_source(200)), ConfigError);
}

TEST(Plan, ConcatSamplingFollowsItsProbabilities) {
  PlanSettings settings = three_parts();
  settings.parts_are_sampled = true;
  settings.sampling_scale = 50.0;
  const auto shares = [](const PlanSettings& s) {
    std::map<int, double> share;
    const auto samples = flat(*Planner(s, test_source(200)).epoch(0));
    EXPECT_EQ(samples.size(), 10'000u);
    for (int64_t sample : samples) share[part_of(sample)] += 1.0 / static_cast<double>(samples.size());
    return share;
  };
  settings.temperature = 1.0;
  EXPECT_NEAR(shares(settings)[0], 0.5, 0.02);
  settings.temperature = 1e9;  // all alike
  EXPECT_NEAR(shares(settings)[2], 1.0 / 3.0, 0.02);
  settings.temperature = 2.0;
  const double roots = 10.0 + std::sqrt(60.0) + std::sqrt(40.0);
  EXPECT_NEAR(shares(settings)[1], std::sqrt(60.0) / roots, 0.02);
  settings.sampling = ConcatSampling::RoundRobin;
  EXPECT_NEAR(shares(settings)[2], 1.0 / 3.0, 1e-3);
  settings.sampling = ConcatSampling::Random;
  settings.sampling_weights = {0.0, 0.9, 0.1};
  EXPECT_EQ(shares(settings)[0], 0.0);
  EXPECT_NEAR(shares(settings)[1], 0.9, 0.02);
  settings.sampling_weights = {0.0, 0.0, 0.0};
  EXPECT_THROW(Planner(settings, test_source(200)).epoch(0), ConfigError);
}

TEST(Plan, RepeatsAreKnown) {
  PlanSettings settings{.seed = 3, .shuffle = true, .batch_size = 4, .replicas = 3};
  const auto plan = Planner(settings, test_source(50)).epoch(0);
  std::map<int64_t, std::set<int64_t>> repeats;
  for (uint32_t e : plan->entries) repeats[plan->sample(e)].insert(plan->repeat(e));
  EXPECT_EQ(repeats.size(), 50u);
  for (const auto& [sample, seen] : repeats) EXPECT_EQ(seen, (std::set<int64_t>{0, 1, 2}));
}

TEST(Plan, HashKnowsEverySettingAndTheSource) {
  std::set<uint64_t> hashes;
  const auto add = [&](PlanSettings s, PlanSource source) {
    hashes.insert(Planner(std::move(s), std::move(source)).hash());
  };
  const PlanSettings base{.batch_size = 4};
  size_t count = 0;
  for (auto change : std::vector<std::function<void(PlanSettings&)>>{
           [](auto&) {}, [](auto& s) { s.seed = 1; }, [](auto& s) { s.shuffle = true; },
           [](auto& s) { s.drop_last = true; }, [](auto& s) { s.batch_size = 5; },
           [](auto& s) { s.groups_per_step = 2; }, [](auto& s) { s.min_length = 0.1; },
           [](auto& s) { s.max_length = 100; }, [](auto& s) { s.cut_length = 50; }, [](auto& s) { s.num_buckets = 3; },
           [](auto& s) { s.bucket_edges = {2.0}; }, [](auto& s) { s.group_length = 30; },
           [](auto& s) { s.replicas = 2; }}) {
    PlanSettings settings = base;
    change(settings);
    add(settings, test_source(20));
    ++count;
  }
  PlanSource other = test_source(20);
  other.fingerprint = 78;
  add(base, other);
  EXPECT_EQ(hashes.size(), count + 1);
  EXPECT_EQ(Planner(base, test_source(20)).hash(), Planner(base, test_source(20)).hash());
}

TEST(Plan, SubstituteIsAKeptSampleAndNeverTheSameOne) {
  const Planner planner({.seed = 1, .batch_size = 2, .min_length = 2.0}, test_source(300));
  const std::set<int64_t> kept(planner.kept().begin(), planner.kept().end());
  std::set<int64_t> seen;
  for (int attempt = 0; attempt < 50; ++attempt) {
    const int64_t substitute = planner.substitute(0, *kept.begin(), attempt);
    EXPECT_EQ(kept.count(substitute), 1u);
    EXPECT_NE(substitute, *kept.begin());
    EXPECT_EQ(substitute, planner.substitute(0, *kept.begin(), attempt));
    seen.insert(substitute);
  }
  EXPECT_GT(seen.size(), 20u);
  EXPECT_NE(planner.substitute(0, 5, 0), planner.substitute(1, 5, 0));
}

TEST(Plan, WhatIsSetApartIsTheSameInEveryJobAndNowhereElse) {
  const auto samples = [](PlanSettings settings) {
    const Planner planner(std::move(settings), test_source(1000));
    return std::set<uint32_t>(planner.kept().begin(), planner.kept().end());
  };
  const auto rest = samples({.batch_size = 4, .hold_out = {0.1, false}});
  const auto apart = samples({.batch_size = 2, .hold_out = {0.1, true}});
  EXPECT_EQ(rest.size() + apart.size(), 1000u);
  EXPECT_NEAR(static_cast<double>(apart.size()), 100, 30);
  for (const uint32_t sample : apart) EXPECT_EQ(rest.count(sample), 0u);
  EXPECT_EQ(apart, samples({.seed = 7, .shuffle = true, .batch_size = 8, .num_buckets = 4, .hold_out = {0.1, true}}));
  EXPECT_NE(Planner({.batch_size = 4}, test_source(1000)).hash(),
            Planner({.batch_size = 4, .hold_out = {0.1, false}}, test_source(1000)).hash());
  EXPECT_THROW(Planner({.batch_size = 1, .hold_out = {1e-9, true}}, test_source(3)), DataError);
}

TEST(Plan, RefusesWhatCannotBe) {
  EXPECT_THROW(Planner({.batch_size = 2}, test_source(0)), DataError);
  EXPECT_THROW(Planner({.batch_size = 2, .bucket_edges = {3.0, 2.0}}, test_source(5)), ConfigError);
  EXPECT_THROW(Planner({.batch_size = 2, .num_buckets = 300}, test_source(5)), ConfigError);
}

TEST(Plan, RefusesMoreSamplesThanItCanNumber) {
  const auto refusal = [](PlanSettings settings, PlanSource source) -> std::string {
    try {
      const Planner planner(std::move(settings), std::move(source));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(
      refusal({.batch_size = 2}, PlanSource{int64_t{1} << 50, test_length, {}, 1}).find("1125899906842624 samples"),
      std::string::npos);
  PlanSettings buckets{.batch_size = 2, .part_sizes = {3, 2}, .parts_are_buckets = true};
  buckets.part_weights = {1, 3'000'000'000};
  EXPECT_NE(refusal(buckets, test_source(5)).find("bucketing_weights"), std::string::npos);
  PlanSettings sampled{.batch_size = 2, .part_sizes = {3, 2}, .parts_are_sampled = true};
  sampled.sampling_scale = 1e12;
  EXPECT_NE(refusal(sampled, test_source(5)).find("concat_sampling_scale"), std::string::npos);
  sampled.sampling_scale = 100;
  EXPECT_EQ(refusal(sampled, test_source(5)), "");
}

}  // namespace
}  // namespace redline::data
