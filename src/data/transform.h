// What happens between decoding and collation. A task may hand data a SampleTransform, so that e.g. mel features are
// computed and cached by workers although data knows no model. Every draw comes from KeyedStream(seed, epoch, sample,
// operation).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "data/sample.h"

namespace redline::data {

struct DrawKey {
  uint64_t seed = 0, epoch = 0;
};

// One sample at a time; any worker, several at once. Throws DataError only for a sample that cannot be used (it then
// counts as bad). Arrays may be shared with the feature cache: a transform puts a new array in the place of an old one
// and never writes into an array it did not make.
class SampleTransform {
 public:
  virtual ~SampleTransform() = default;
  virtual void apply(Sample& sample, const DrawKey& key) const = 0;
  // Settings that change the result: part of the cache key. A transform that draws random numbers is never cached.
  virtual std::string fingerprint() const = 0;
  virtual bool random() const = 0;
};

// Mixes the samples of one group (design: mix_group), e.g. noise and other speakers; acts before any split into
// micro-batches. The same rule for shared arrays. A rank that owns only some rows of a group still runs this on the
// whole group.
class GroupTransform {
 public:
  virtual ~GroupTransform() = default;
  virtual void apply(std::span<Sample> group, const DrawKey& key) const = 0;
  virtual std::string fingerprint() const = 0;
};

// How a field's rows become one array: padded along its first dimension with pad_value to the longest row (rounded up
// to a multiple).
struct CollateField {
  std::string name;
  double pad_value = 0.0;
  int64_t pad_to_multiple = 1;
  std::string length_name;  // also emit I64 [B] of true lengths under this name; empty = no
  bool optional = false;
  bool picture = false;       // rows end in [C, H, W]: in a channels-last run they are written as [H, W, C]
  std::string sample_name{};  // the samples' field, where the batch calls it otherwise; empty = name
  const std::string& source() const { return sample_name.empty() ? name : sample_name; }
};
struct CollateSpec {
  std::vector<CollateField> fields;  // only these go into the batch
  std::string counted_field;         // whose elements count as items / padded_items
  bool channels_last = false;        // set by the loader
};

}  // namespace redline::data
