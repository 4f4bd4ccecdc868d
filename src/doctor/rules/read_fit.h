// Whether reading takes longer for longer samples: a disk that is slow to begin (seeks, a network's round trip) takes
// its time for every read, one that is slow to deliver takes it for every byte. Pure.
#pragma once

#include <span>

#include "measure/run_record.h"

namespace redline::doctor {

struct ReadFit {
  bool known = false;      // enough steps, of different lengths, and a clear answer
  double grows = 0;        // share of the reading time that grows with the items read, 0..1
  double correlation = 0;  // of reading time and items
};

// Workers read ahead of the step that uses a sample, so rows are also held against later ones.
ReadFit fit_reads(std::span<const measure::StepRow> rows);

}  // namespace redline::doctor
