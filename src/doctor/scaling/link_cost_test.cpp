#include "doctor/scaling/link_cost.h"

#include <gtest/gtest.h>

namespace redline::doctor {
namespace {

constexpr Link kGigabit{125e6, 50e-6};

TEST(LinkCost, RingByHand) {
  const Network ring{Topology::Ring, kGigabit, 1};
  EXPECT_EQ(all_reduce_seconds(ring, {}, 1, 20e6), 0);
  // Two messages of half the bytes: 20 MB over the wire at 125 MB/s.
  EXPECT_NEAR(all_reduce_seconds(ring, {}, 2, 20e6), 0.16 + 2 * 50e-6, 1e-9);
  EXPECT_NEAR(all_reduce_seconds(ring, {}, 4, 20e6), 1.5 * 0.16 + 2 * 50e-6, 1e-9) << "only the first wait shows";
  // Bandwidth's part has a limit, latency's has none: two segments of 78 us each, and 100 us until one has come.
  const double segment = 20e6 / 1024 / 125e6 / 2;
  EXPECT_NEAR(all_reduce_seconds(ring, {}, 1024, 20e6), 2046 * (segment + 100e-6) + 100e-6, 1e-9);
}

TEST(LinkCost, LatencyHidesBehindSegments) {
  // Two ranks, 2 MB over 300 Mbit/s, as 9 buckets in a row showed: 2 ms cost about two latencies a bucket, 10 ms more.
  const auto seconds = [](double latency) {
    return all_reduce_seconds({Topology::Ring, {37.5e6, latency}, 1}, {}, 2, 2.1e6);
  };
  const double still = seconds(0);
  EXPECT_NEAR(still, 0.056, 1e-9);
  EXPECT_NEAR(seconds(2e-3) - still, 4e-3, 1e-9)
      << "28 ms of a hop are longer than 14 ms of a segment and 4 of waiting";
  EXPECT_NEAR(seconds(10e-3) - still, 20e-3 + 2 * (14e-3 + 20e-3 - 28e-3), 1e-9);
}

TEST(LinkCost, TheMachinesOwnCost) {
  const Network ring{Topology::Ring, kGigabit, 1};
  const double wire = all_reduce_seconds(ring, {}, 2, 1e6);
  EXPECT_NEAR(all_reduce_seconds(ring, {100e-6, 0}, 2, 1e6), wire + 200e-6, 1e-9) << "each message";
  EXPECT_NEAR(all_reduce_seconds(ring, {0, 4e-9}, 2, 1e6), wire, 1e-12) << "copying hides behind a slower wire";
  EXPECT_NEAR(all_reduce_seconds(ring, {0, 16e-9}, 2, 1e6), 100e-6 + 16e-3, 1e-9) << "and does not behind a faster";
  EXPECT_NEAR(all_reduce_seconds({Topology::Ring, {}, 1}, {10e-6, 1e-9}, 2, 1e6), 20e-6 + 1e-3, 1e-9) << "no wire";
}

TEST(LinkCost, TreeByHand) {
  const Network tree{Topology::Tree, kGigabit, 1};
  EXPECT_NEAR(all_reduce_seconds(tree, {}, 2, 20e6), 2 * (0.16 + 50e-6), 1e-9);
  EXPECT_NEAR(all_reduce_seconds(tree, {}, 5, 20e6), 6 * (0.16 + 50e-6), 1e-9) << "three levels";
  // Few bytes on many ranks: the tree wins; many bytes: the ring.
  const Network ring{Topology::Ring, kGigabit, 1};
  EXPECT_LT(all_reduce_seconds(tree, {}, 1024, 1e3), all_reduce_seconds(ring, {}, 1024, 1e3));
  EXPECT_GT(all_reduce_seconds(tree, {}, 64, 20e6), all_reduce_seconds(ring, {}, 64, 20e6));
}

TEST(LinkCost, HierarchicalByHand) {
  const OwnCost own{10e-6, 1e-9};
  const Network eight{Topology::Hierarchical, kGigabit, 8};
  const Network ring{Topology::Ring, kGigabit, 1};
  EXPECT_NEAR(all_reduce_seconds(eight, own, 8, 1e6), 14 * 10e-6 + 2 * 7.0 / 8 * 1e-3, 1e-9) << "no wire at all";
  EXPECT_NEAR(all_reduce_seconds(eight, own, 64, 1e6),
              all_reduce_seconds(eight, own, 8, 1e6) + all_reduce_seconds(ring, own, 8, 1e6), 1e-12);
  EXPECT_EQ(all_reduce_seconds({Topology::Hierarchical, kGigabit, 1}, own, 8, 1e6),
            all_reduce_seconds(ring, own, 8, 1e6));
}

TEST(LinkCost, SmallExchangesGoAroundTheRing) {
  EXPECT_EQ(exchange_seconds({Topology::Tree, kGigabit, 1}, {}, 1), 0);
  EXPECT_NEAR(exchange_seconds({Topology::Tree, kGigabit, 1}, {50e-6, 0}, 1024), 1023 * 100e-6, 1e-9);
}

}  // namespace
}  // namespace redline::doctor
