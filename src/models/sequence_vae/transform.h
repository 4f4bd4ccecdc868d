// From a Parquet row to what the model reads: ids checked, long sequences cut, start and end put around tokens, flat
// numbers shaped into vectors. Runs in the workers; a row that cannot be used is named by data and replaced.
#pragma once

#include <atomic>
#include <string>

#include "data/transform.h"
#include "models/sequence_vae/options.h"

namespace redline::models::sequence_vae {

class SequenceTransform : public data::SampleTransform {
 public:
  explicit SequenceTransform(const Options& options) : options_(options) {}
  void apply(data::Sample& sample, const data::DrawKey& key) const override;
  std::string fingerprint() const override;
  bool random() const override { return false; }

 private:
  void tokens(data::Sample& sample) const;
  void vectors(data::Sample& sample, const std::string& column, const std::string& name) const;

  void say_cut(const data::Sample& sample, int64_t length, int64_t kept) const;

  Options options_;
  mutable std::atomic<bool> said_cut_ = false;
};

}  // namespace redline::models::sequence_vae
