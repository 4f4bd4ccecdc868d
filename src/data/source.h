// Where samples come from. A source knows its samples' lengths ahead (that is all the plan needs) and reads one sample
// by index. Threads: read() is called by many workers at once and must not share mutable state without care.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/philox.h"
#include "data/sample.h"
#include "measure/stage_clock.h"

namespace redline::data {

// One bad sample is an outcome, not an error: it is named, counted and replaced (data/workers/bad_samples.h).
struct BadSample {
  std::string name;    // file, tar member or row, as the user knows it
  std::string reason;  // "truncated", "0 bytes", ...: one sentence
};
using ReadResult = std::variant<Sample, BadSample>;

class Source {
 public:
  virtual ~Source() = default;
  virtual int64_t size() const = 0;
  // Reads and decodes sample `index`; charges Read and Decode to the slot.
  virtual ReadResult read(int64_t index, measure::StageClock::Slot& slot) const = 0;

  // Length in the unit of the plan: seconds for audio, elements for sequences, 1 for images. Known without decoding.
  virtual double length(int64_t index) const = 0;
  virtual std::string length_unit() const = 0;
  virtual std::string name(int64_t index) const = 0;
  // Changes when the content or order of the source changes; part of the plan hash.
  virtual uint64_t fingerprint() const = 0;
  // Identity of one sample's content for the feature cache: changes when its file does. Called once per read, so a stat
  // is fine.
  virtual uint64_t content_key(int64_t index) const { return mix_key(fingerprint(), static_cast<uint64_t>(index)); }
  // Samples that live together on disk and are read cheaply together (row groups, tars): group id of each sample; empty
  // = none.
  virtual std::vector<int32_t> locality_groups() const { return {}; }
  // Bytes of all samples when decoded, for a source that decodes locality groups whole; 0: not such a source.
  virtual uint64_t table_bytes() const { return 0; }
};

}  // namespace redline::data
