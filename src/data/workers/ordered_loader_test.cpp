#include "data/workers/ordered_loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <set>

#include "core/error.h"
#include "core/time.h"
#include "data/testing/engine.h"

namespace redline::data {
namespace {

namespace te = testing_engine;

uint64_t hash_epochs(Loader& loader, int epochs) {
  uint64_t hash = 1;
  for (int e = 0; e < epochs; ++e) {
    while (auto batch = loader.next()) hash = te::batch_hash(*batch, hash);
  }
  return hash;
}

// As many batches over the ends of epochs, and not one call more: the call that ends an epoch lets workers begin the
// next.
uint64_t hash_batches(Loader& loader, int64_t batches) {
  uint64_t hash = 1;
  while (batches > 0) {
    if (auto batch = loader.next()) {
      hash = te::batch_hash(*batch, hash);
      --batches;
    }
  }
  return hash;
}

struct ModeCase {
  const char* name;
  std::function<void(te::LoaderOptions&)> set;
};

class EveryMode : public testing::TestWithParam<ModeCase> {};

// The promise of the engine: order and contents do not depend on the number of workers, augmentation included.
TEST_P(EveryMode, ContentsAreTheSameForAnyNumberOfWorkers) {
  const auto source = te::numbered_source(403);
  std::set<uint64_t> hashes;
  for (int workers : {0, 1, 2, 4, 8}) {
    te::LoaderOptions options;
    GetParam().set(options);
    options.loader.num_workers = workers;
    options.loader.prefetch_batches = 1 + 2 * workers;
    auto loader = te::make_loader(source, options);
    hashes.insert(hash_epochs(*loader, 3));
  }
  EXPECT_EQ(hashes.size(), 1u);
  // Negative control: another seed is seen.
  te::LoaderOptions options;
  GetParam().set(options);
  options.plan.seed = 6;
  auto loader = te::make_loader(source, options);
  EXPECT_EQ(hashes.count(hash_epochs(*loader, 3)), 0u);
}

// Ranks 1, 2 and 3 together deliver exactly the single-rank step, row contents included, with equal numbers of
// micro-batches.
TEST_P(EveryMode, RanksOnlySplitTheSteps) {
  const auto source = te::numbered_source(151);
  using Step = std::multiset<std::pair<int64_t, float>>;
  const auto steps_of = [&](int world, std::set<std::vector<int>>& shapes) {
    std::map<std::pair<int64_t, int64_t>, Step> steps;
    for (int rank = 0; rank < world; ++rank) {
      te::LoaderOptions options;
      GetParam().set(options);
      options.loader.split.rank = rank;
      options.loader.split.world = world;
      options.loader.num_workers = rank;  // also differs
      auto loader = te::make_loader(source, options);
      std::vector<int> shape;
      for (int epoch = 0; epoch < 2; ++epoch) {
        while (auto batch = loader->next()) {
          shape.push_back(batch->num_micro_batches);
          const Array* x = batch->find("x");
          for (size_t r = 0; r < batch->sample_ids.size(); ++r) {
            steps[{batch->epoch, batch->step}].emplace(batch->sample_ids[r],
                                                       x->as<float>()[r * static_cast<size_t>(x->shape()[1])]);
          }
        }
      }
      shapes.insert(shape);
    }
    return steps;
  };
  std::set<std::vector<int>> shapes;
  const auto whole = steps_of(1, shapes);
  for (int world : {2, 3}) {
    shapes.clear();
    EXPECT_EQ(steps_of(world, shapes), whole) << world << " ranks";
    EXPECT_EQ(shapes.size(), 1u) << "every rank runs the same micro-batches per step";
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, EveryMode,
                         testing::Values(ModeCase{"plain", [](auto&) {}},
                                         ModeCase{"jitter", [](auto& o) { o.jitter = true; }},
                                         ModeCase{"mixed", [](auto& o) { o.jitter = o.mix = true; }},
                                         ModeCase{"accumulated",
                                                  [](auto& o) {
                                                    o.jitter = o.mix = true;
                                                    o.plan.groups_per_step = 3;
                                                    o.loader.split.micro_batch_size = 2;
                                                  }},
                                         ModeCase{"statistics",
                                                  [](auto& o) {
                                                    o.jitter = o.mix = true;
                                                    o.plan.groups_per_step = 2;
                                                    o.loader.split.keep_groups = true;
                                                  }},
                                         ModeCase{"buckets",
                                                  [](auto& o) {
                                                    o.jitter = true;
                                                    o.plan.num_buckets = 5;
                                                    o.plan.drop_last = true;
                                                  }},
                                         ModeCase{"bounded",
                                                  [](auto& o) {
                                                    o.plan.num_buckets = 5;
                                                    o.plan.batch_size = 0;
                                                    o.plan.group_length = 100;
                                                    o.loader.split.bounded_groups = true;
                                                  }},
                                         ModeCase{"tight",
                                                  [](auto& o) {
                                                    o.jitter = o.mix = true;
                                                    o.loader.max_buffer_bytes = 1;
                                                    o.loader.persistent_workers = false;
                                                  }},
                                         ModeCase{"stopping", [](auto& o) { o.loader.continuous = false; }}),
                         [](const auto& test) { return test.param.name; });

// Resume at 200 random positions, in chains of three: each loader saves its position, the next one goes on from it,
// with other numbers of workers and micro-batches; the rows of every step are those of the uninterrupted run.
TEST(OrderedLoader, ResumesAnywhereInChainsOfThree) {
  const auto source = te::numbered_source(97);
  te::LoaderOptions base;
  base.jitter = base.mix = true;
  base.plan.groups_per_step = 2;
  base.plan.num_buckets = 3;
  const auto read_step = [](Loader& loader) {
    std::map<int64_t, float> rows;
    while (true) {
      auto batch = loader.next();
      if (!batch) continue;  // an epoch ended
      const Array* x = batch->find("x");
      for (size_t r = 0; r < batch->sample_ids.size(); ++r) {
        rows[batch->sample_ids[r]] = x->as<float>()[r * static_cast<size_t>(x->shape()[1])];
      }
      if (batch->micro_batch + 1 == batch->num_micro_batches) return rows;
    }
  };
  std::vector<std::map<int64_t, float>> expected;
  auto whole = te::make_loader(source, base);
  const int64_t steps = whole->steps_per_epoch();
  for (int64_t s = 0; s < 4 * steps; ++s) expected.push_back(read_step(*whole));

  KeyedStream random(1, 1, 1, 1);
  for (int chain = 0; chain < 200; ++chain) {
    int64_t at = random.uniform_int(0, 3 * steps - 1);
    Position position{base.plan.seed, at / steps, at % steps, whole->position().plan_hash};
    for (int link = 0; link < 3; ++link) {
      te::LoaderOptions options = base;
      options.loader.num_workers = static_cast<int>(random.uniform_int(0, 3));
      options.loader.split.micro_batch_size = random.uniform_int(0, 4);
      auto loader = te::make_loader(source, options);
      ASSERT_EQ(loader->position().plan_hash, position.plan_hash);
      loader->seek(position.epoch, position.step);
      ASSERT_EQ(loader->position(), position);
      const int64_t run = random.uniform_int(1, 4);
      for (int64_t s = 0; s < run && at < 4 * steps; ++s, ++at) {
        ASSERT_EQ(read_step(*loader), expected[static_cast<size_t>(at)]) << "chain " << chain << " step " << at;
      }
      if (random.uniform_int(0, 1) == 1) {  // a part of a step does not count
        const auto part = loader->next();
        if (part && part->num_micro_batches == 1) ++at;
      }
      position = loader->position();
      if (at >= 3 * steps) break;
    }
  }
}

TEST(OrderedLoader, PositionCountsWholeStepsAndEpochsEndOnce) {
  te::LoaderOptions options;
  options.plan.groups_per_step = 2;
  auto loader = te::make_loader(te::numbered_source(16), options);
  EXPECT_EQ(loader->steps_per_epoch(), 2);
  EXPECT_EQ(loader->position().step, 0);
  loader->next();
  EXPECT_EQ(loader->position().step, 0) << "half a step does not count";
  loader->next();
  EXPECT_EQ(loader->position().step, 1);
  loader->next();
  loader->next();
  EXPECT_EQ(loader->position().step, 2);
  EXPECT_EQ(loader->position().epoch, 0);
  EXPECT_FALSE(loader->next().has_value());
  EXPECT_EQ(loader->position().epoch, 1);
  EXPECT_EQ(loader->position().step, 0);
  EXPECT_TRUE(loader->next().has_value());
  loader->seek(0, 2);
  EXPECT_FALSE(loader->next().has_value()) << "a position at the end of an epoch is valid";
  EXPECT_THROW(loader->seek(0, 3), DataError);
}

TEST(OrderedLoader, SeekDropsWhatIsInFlight) {
  te::LoaderOptions options;
  options.jitter = true;
  options.loader.num_workers = 3;
  options.loader.prefetch_batches = 8;
  const auto source = te::numbered_source(400);
  auto loader = te::make_loader(source, options);
  auto plain = te::make_loader(source, [&] {
    auto o = options;
    o.loader.num_workers = 0;
    return o;
  }());
  KeyedStream random(2, 2, 2, 2);
  for (int i = 0; i < 300; ++i) {
    const int64_t epoch = random.uniform_int(0, 3), step = random.uniform_int(0, loader->steps_per_epoch() - 1);
    loader->seek(epoch, step);
    plain->seek(epoch, step);
    for (int64_t n = random.uniform_int(0, 3); n >= 0; --n) {
      const auto a = loader->next(), b = plain->next();
      ASSERT_EQ(a.has_value(), b.has_value());
      if (a) {
        ASSERT_EQ(te::batch_hash(*a, 0), te::batch_hash(*b, 0));
      }
    }
  }
  const int64_t held = loader->stats().queue_bytes;
  loader->seek(7, 3);
  EXPECT_GE(held, 0);
  while (loader->next()) {
  }
  EXPECT_GE(loader->stats().queue_bytes, 0);
}

// A slow sample must not idle the others: with the first sample held back, workers still finish the whole window behind
// it.
TEST(OrderedLoader, ASlowSampleHoldsUpOnlyItself) {
  std::mutex mutex;
  std::condition_variable wake;
  bool released = false;
  std::atomic<int> others{0};
  auto source = std::make_shared<te::HookedSource>(te::numbered_source(64), [&](int64_t i) -> std::optional<BadSample> {
    if (i == 0) {
      std::unique_lock lock(mutex);
      wake.wait(lock, [&] { return released; });
    } else {
      ++others;
      const std::lock_guard lock(mutex);
      wake.notify_all();
    }
    return std::nullopt;
  });
  te::LoaderOptions options;
  options.plan.shuffle = false;
  options.loader.num_workers = 2;
  options.loader.prefetch_batches = 6;
  auto loader = te::make_loader(source, options);
  std::thread release([&] {
    std::unique_lock lock(mutex);
    wake.wait(lock, [&] { return others.load() >= 23; });  // six micro-batches of four, less the slow one
    released = true;
    wake.notify_all();
  });
  const auto batch = loader->next();
  release.join();
  EXPECT_EQ(batch->sample_ids, (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST(OrderedLoader, TheWindowBoundsWhatIsMadeAhead) {
  std::atomic<int> reads{0};
  auto source = std::make_shared<te::HookedSource>(te::numbered_source(400), [&](int64_t) -> std::optional<BadSample> {
    ++reads;
    return std::nullopt;
  });
  te::LoaderOptions options;
  options.loader.num_workers = 4;
  options.loader.prefetch_batches = 3;
  auto loader = te::make_loader(source, options);
  for (int i = 0; i < 20; ++i) {
    loader->next();
    EXPECT_LE(reads.load(), (i + 1 + 3 + 1) * 4)
        << "three micro-batches of four ahead of the consumer, and the one it may just take";
  }
}

TEST(OrderedLoader, BytesBoundWhatIsMadeAhead) {
  std::vector<Sample> samples;
  for (int64_t i = 0; i < 64; ++i) samples.push_back(te::numbered_sample(i, 256 << 10));  // 1 MiB each
  auto source = std::make_shared<MemorySource>(std::move(samples));
  te::LoaderOptions options;
  options.plan.batch_size = 2;
  options.loader.num_workers = 4;
  options.loader.prefetch_batches = 32;
  options.loader.max_buffer_bytes = 6 << 20;
  options.jitter = true;
  auto loader = te::make_loader(source, options);
  int64_t highest = 0;
  while (loader->next()) {
    for (int spin = 0; spin < 200; ++spin) highest = std::max(highest, loader->stats().queue_bytes);
  }
  // The limit, a row per worker that had started below it, and a batch being collated beside its rows.
  EXPECT_LE(highest, (6 + 4 + 4) << 20);
  EXPECT_GT(highest, 1 << 20);
}

TEST(OrderedLoader, AWorkersExceptionReachesTheConsumerWithTheSamplesName) {
  for (int workers : {0, 2}) {
    auto source =
        std::make_shared<te::HookedSource>(te::numbered_source(40), [](int64_t i) -> std::optional<BadSample> {
          if (i == 21) throw DiskError("Input/output error.");
          return std::nullopt;
        });
    te::LoaderOptions options;
    options.plan.shuffle = false;
    options.loader.num_workers = workers;
    auto loader = te::make_loader(source, options);
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(loader->next());
    for (int again = 0; again < 2; ++again) {
      try {
        loader->next();
        FAIL() << "expected DiskError";
      } catch (const DiskError& error) {
        EXPECT_STREQ(error.what(), "Sample row 21: Input/output error.");
        EXPECT_EQ(error.code(), ExitCode::Disk);
      }
    }
    loader->seek(0, 6);
    EXPECT_EQ(loader->next()->sample_ids[0], 24);
  }
}

TEST(OrderedLoader, ShutsDownFromAnyState) {
  const auto source = te::numbered_source(200);
  for (int stop_after = 0; stop_after < 60; stop_after += 3) {
    te::LoaderOptions options;
    options.loader.num_workers = 1 + stop_after % 5;
    options.loader.prefetch_batches = 4;
    options.jitter = options.mix = true;
    auto loader = te::make_loader(source, options);
    for (int i = 0; i < stop_after; ++i) loader->next();
    const int64_t begin = now_ns();
    loader.reset();
    EXPECT_LT(seconds_between(begin, now_ns()), 1.0);
  }
}

TEST(OrderedLoader, RefusesABatchThatNeverFills) {
  te::LoaderOptions options;
  options.plan.drop_last = true;
  options.plan.batch_size = 8;
  EXPECT_THROW(te::make_loader(te::numbered_source(7), options), DataError);
}

TEST(OrderedLoader, CachesWhatIsNotRandomAndCountsHits) {
  std::atomic<int> reads{0};
  auto source = std::make_shared<te::HookedSource>(te::numbered_source(50), [&](int64_t) -> std::optional<BadSample> {
    ++reads;
    return std::nullopt;
  });
  te::LoaderOptions options;
  options.jitter = true;
  options.loader.num_workers = 2;
  options.loader.continuous = false;
  const int64_t batches = 3 * ((50 + options.plan.batch_size - 1) / options.plan.batch_size);
  const uint64_t plain = hash_batches(*te::make_loader(source, options), batches);
  EXPECT_EQ(reads.exchange(0), 150);
  options.cache = make_memory_cache(1 << 20);
  auto loader = te::make_loader(source, options);
  EXPECT_EQ(hash_batches(*loader, batches), plain);
  EXPECT_EQ(reads.load(), 50);
  EXPECT_EQ(loader->stats().cache_hits, 100);
  EXPECT_EQ(loader->stats().cache_misses, 50);
}

// The fast path delivers what the plain path does, bad rows and their substitutes included.
TEST(OrderedLoader, WholeBatchesEqualSingleSamples) {
  const auto bad = [](int64_t i) { return i % 37 == 5; };
  const auto source = std::make_shared<te::TableSource>(te::numbered_source(5000), bad);
  std::set<std::pair<uint64_t, int64_t>> results;
  for (int workers : {0, 1, 3}) {
    for (bool whole : {false, true}) {
      for (int64_t micro : {0, 5}) {
        te::LoaderOptions options;
        options.plan.batch_size = 16;
        options.plan.groups_per_step = 2;
        options.loader.num_workers = workers;
        options.loader.split.micro_batch_size = micro;
        options.whole_batches = whole;
        auto loader = te::make_loader(source, options);
        loader->seek(0, 100);
        uint64_t rows = 1;
        for (int epoch = 0; epoch < 2; ++epoch) {
          while (auto batch = loader->next()) {
            for (size_t r = 0; r < batch->sample_ids.size(); ++r) {
              const Array* x = batch->find("x");
              const size_t width = static_cast<size_t>(x->shape()[1]),
                           length = static_cast<size_t>(batch->find("x_len")->as<int64_t>()[r]);
              rows += mix_key(static_cast<uint64_t>(batch->step),
                              hash64(std::as_bytes(x->as<float>().subspan(r * width, length))));
            }
          }
        }
        results.emplace(rows, loader->stats().bad_samples);
      }
    }
  }
  EXPECT_EQ(results.size(), 1u);
}

}  // namespace
}  // namespace redline::data
