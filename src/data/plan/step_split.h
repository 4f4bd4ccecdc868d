// One step of the plan, split over ranks and into micro-batches: which samples this rank reads, and which rows form
// each micro-batch. Splitting never changes what a step contains, only how it is cut. Pure metadata.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/plan/plan.h"

namespace redline::data {

struct SplitSettings {
  int rank = 0, world = 1;
  int64_t micro_batch_size = 0;  // rows per rank; 0 = as many micro-batches as a step has groups
  // The task looks across the batch (batch statistics): rows stay in their groups, in the order drawn.
  bool keep_groups = false;
  // Groups are bounded by padded length: rows stay in their groups (another cut could exceed the bound), sorted by
  // length.
  bool bounded_groups = false;
  // A transform mixes the samples of a group: a rank that owns one row reads the whole group.
  bool mixes_groups = false;
  // With keep_groups: layers look across ranks too, so each rank takes its share of every group and together they see
  // one.
  bool across_ranks = false;
};

// What one rank does in one step.
struct StepSplit {
  std::vector<uint32_t> entries;         // to read, group by group when groups mix, else in the order of micro-batches
  std::vector<EpochPlan::Group> groups;  // of `entries`; only when groups mix
  std::vector<uint32_t> rows;            // indices into `entries`, micro-batch by micro-batch
  std::vector<uint32_t> micro_begin;     // into `rows`, one more than micro-batches

  size_t num_micro_batches() const { return micro_begin.size() - 1; }
};

// Every rank gets the same number of micro-batches; a rank may get one without rows when a step has fewer samples than
// that takes. `length` is asked only when rows are sorted; it takes a sample index.
StepSplit split_step(const EpochPlan& plan, int64_t step, const SplitSettings& settings,
                     const std::function<double(int64_t)>& length);

}  // namespace redline::data
