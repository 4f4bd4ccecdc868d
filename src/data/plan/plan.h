// The plan: which samples make up each optimiser step of an epoch, from metadata alone. No clock, thread, file or
// device inside.
//
// A plan is a list of groups (design: mix_group; the requested batch) and a step is `groups_per_step` consecutive ones.
// Ranks and micro-batches only split a step (data/plan/step_split.h), so the plan knows neither; resuming needs an
// epoch and a step number.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace redline::data {

enum class PartOrder { FixedOrder, SyncedRandomized, FullyRandomized };  // NeMo's bucketing_strategy
enum class ConcatSampling { Temperature, RoundRobin, Random };

// A fixed share of the samples set apart, whatever the seed: a job without validation data is judged on it. One plan
// takes the rest, another only these.
struct HoldOut {
  double share = 0;       // 0: nothing is set apart
  bool inverted = false;  // only what was set apart
  bool takes(int64_t sample) const;
};

// Everything that shapes a plan; all of it is in the plan's hash.
struct PlanSettings {
  uint64_t seed = 0;
  bool shuffle = false;
  bool drop_last = false;
  int64_t batch_size = 1;       // samples of a group
  int64_t groups_per_step = 1;  // over all ranks

  // Samples outside are left out and counted; lengths beyond `cut_length` count as that (truncated when read).
  double min_length = 0.0, max_length = std::numeric_limits<double>::infinity();
  double cut_length = std::numeric_limits<double>::infinity();

  // Length buckets: quantiles when `bucket_edges` is empty. Upper edges, ascending, one fewer than buckets.
  int num_buckets = 1;
  std::vector<double> bucket_edges{};
  // A group holds as many samples as fit count x longest <= group_length, at most batch_size unless that is 0. 0 = by
  // count alone.
  double group_length = 0.0;

  // Shuffle that keeps reads together (needs locality groups): groups in random order, samples shuffled within windows
  // of so many groups or so many samples. 0 and 0 = fully shuffled.
  int64_t window_locality_groups = 0;
  int64_t window_samples = 0;

  // Consecutive parts of the source, one per manifest the user listed; empty = one part. At most one of the two uses.
  std::vector<int64_t> part_sizes{};
  bool parts_are_buckets = false;
  PartOrder part_order = PartOrder::SyncedRandomized;
  std::vector<int64_t> part_batch_sizes{};  // per part; empty = batch_size
  std::vector<int64_t> part_weights{};      // how often each part is repeated in an epoch; empty = once
  bool parts_are_sampled = false;
  ConcatSampling sampling = ConcatSampling::Temperature;
  double temperature = 1.0;                // p_i ~ n_i^(1/temperature)
  std::vector<double> sampling_weights{};  // Random: per part
  double sampling_scale = 1.0;             // draws per epoch = scale x samples

  HoldOut hold_out{};

  int64_t replicas = 1;  // how often an epoch runs over all samples (NeMo's `replicate` shard strategy: once per rank)
};

struct FilterReport {
  int64_t total = 0, kept = 0, too_short = 0, too_long = 0;
  int64_t unknown = 0;  // length could not be told (unreadable header): kept, so that reading names the file
  int64_t held_out = 0;
};

// One epoch. An entry is repeat * num_samples + sample: a repeated sample draws other random numbers each time.
struct EpochPlan {
  struct Group {
    uint32_t begin = 0, size = 0;
  };
  int64_t epoch = 0;
  uint32_t num_samples = 0;
  int64_t groups_per_step = 1;
  std::vector<uint32_t> entries;
  std::vector<Group> groups;
  int64_t num_dropped = 0;  // by drop_last

  int64_t num_steps() const { return (static_cast<int64_t>(groups.size()) + groups_per_step - 1) / groups_per_step; }
  std::span<const Group> step(int64_t index) const {
    const size_t begin = static_cast<size_t>(index * groups_per_step);
    const size_t end = std::min(groups.size(), begin + static_cast<size_t>(groups_per_step));
    return std::span(groups).subspan(begin, end - begin);
  }
  std::span<const uint32_t> of(const Group& group) const { return std::span(entries).subspan(group.begin, group.size); }
  int64_t sample(uint32_t entry) const { return entry < num_samples ? entry : entry % num_samples; }
  int64_t repeat(uint32_t entry) const { return entry < num_samples ? 0 : entry / num_samples; }
};

// What the plan must know of a source. `length` is asked only when the settings need lengths; `locality` may be empty.
struct PlanSource {
  int64_t size = 0;
  std::function<double(int64_t)> length;
  std::vector<int32_t> locality;
  uint64_t fingerprint = 0;
};

// Makes the plans of all epochs. Immutable after construction: any thread may call.
class Planner {
 public:
  // Throws ConfigError when settings contradict each other and DataError when no sample is left.
  Planner(PlanSettings settings, PlanSource source);

  std::shared_ptr<const EpochPlan> epoch(int64_t index) const;
  uint64_t hash() const { return hash_; }
  const PlanSettings& settings() const { return settings_; }
  const FilterReport& filtered() const { return filtered_; }
  // The samples that may appear, ascending; a substitute for a bad one is drawn from these.
  std::span<const uint32_t> kept() const { return kept_; }
  // The substitute for a bad sample in an epoch, by attempt: a keyed draw, so the same for any worker count.
  int64_t substitute(int64_t epoch, int64_t sample, int attempt) const;
  // Upper bucket edges in use; empty without buckets.
  const std::vector<double>& bucket_edges() const { return edges_; }
  // What the hash is of, for the log and for "why does it differ".
  std::string describe() const;

 private:
  struct Order;
  void check_settings() const;
  void filter();
  void find_parts();
  void check_epoch_size() const;
  void find_locality();
  void make_buckets();
  uint32_t entry(uint64_t repeat, uint32_t sample) const;
  std::span<const uint32_t> part(size_t index) const;
  void order_plain(int64_t epoch, int64_t replica, Order& order) const;
  void order_windows(int64_t epoch, int64_t replica, Order& order) const;
  void order_parts(int64_t epoch, int64_t replica, Order& order) const;
  void order_sampled(int64_t epoch, Order& order) const;
  void cut_groups(const Order& order, EpochPlan& plan) const;
  void cut_run(std::span<const uint32_t> run, int64_t batch_size, EpochPlan& plan, std::vector<uint32_t>* rest) const;
  void sort_by_bucket(std::span<const uint32_t> segment, std::vector<std::vector<uint32_t>>& carried,
                      const EpochPlan& plan, std::vector<uint32_t>& sorted, std::vector<size_t>& begins) const;
  void cut_bucketed(const Order& order, EpochPlan& plan) const;

  PlanSettings settings_;
  PlanSource source_;
  FilterReport filtered_;
  std::vector<uint32_t> kept_;
  std::vector<float> lengths_;  // per sample, when the settings need them
  std::vector<double> edges_;
  std::vector<uint8_t> bucket_of_;          // per sample
  std::vector<uint32_t> locality_begin_;    // into locality_members_, one more than groups
  std::vector<uint32_t> locality_members_;  // kept samples, group by group
  std::vector<size_t> part_begin_;          // into kept_, one more than parts
  uint64_t hash_ = 0;
};

}  // namespace redline::data
