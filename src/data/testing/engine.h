// Small sources and loaders for the engine's tests.
#pragma once

#include <functional>
#include <memory>
#include <numeric>

#include "core/hash.h"
#include "core/philox.h"
#include "data/memory_source.h"
#include "data/workers/batch_reader.h"
#include "data/workers/collate.h"
#include "data/workers/ordered_loader.h"

namespace redline::data::testing_engine {

// A sample whose content is a function of its number: "x" F32 [length], "label" I64 [].
inline Sample numbered_sample(int64_t i, int64_t length) {
  Sample sample;
  sample.id = i;
  Array x = Array::empty(Dtype::F32, {length});
  std::iota(x.as<float>().begin(), x.as<float>().end(), static_cast<float>(i));
  Array label = Array::empty(Dtype::I64, {});
  label.as<int64_t>()[0] = i;
  sample.set("x", x);
  sample.set("label", label);
  return sample;
}

inline int64_t numbered_length(int64_t i) {
  return 1 + static_cast<int64_t>(mix_key(7, static_cast<uint64_t>(i)) % 40);
}

inline std::shared_ptr<MemorySource> numbered_source(int64_t size) {
  std::vector<Sample> samples;
  std::vector<double> lengths;
  for (int64_t i = 0; i < size; ++i) {
    samples.push_back(numbered_sample(i, numbered_length(i)));
    lengths.push_back(static_cast<double>(numbered_length(i)));
  }
  return std::make_shared<MemorySource>(std::move(samples), std::move(lengths));
}

// Calls a function instead of reading; for slow, bad and throwing samples.
class HookedSource : public Source {
 public:
  using Hook = std::function<std::optional<BadSample>(int64_t)>;
  HookedSource(std::shared_ptr<Source> inner, Hook hook) : inner_(std::move(inner)), hook_(std::move(hook)) {}
  int64_t size() const override { return inner_->size(); }
  ReadResult read(int64_t index, measure::StageClock::Slot& slot) const override {
    if (auto bad = hook_(index)) return *bad;
    return inner_->read(index, slot);
  }
  double length(int64_t index) const override { return inner_->length(index); }
  std::string length_unit() const override { return inner_->length_unit(); }
  std::string name(int64_t index) const override { return inner_->name(index); }
  uint64_t fingerprint() const override { return inner_->fingerprint(); }

 private:
  std::shared_ptr<Source> inner_;
  Hook hook_;
};

// Adds a keyed draw to every value, so that contents show epoch, seed and sample.
class JitterTransform : public SampleTransform {
 public:
  void apply(Sample& sample, const DrawKey& key) const override {
    KeyedStream stream(key.seed, key.epoch, static_cast<uint64_t>(sample.id), 11);
    const Array& old = *sample.find("x");
    Array x = Array::empty(Dtype::F32, old.shape());
    for (size_t i = 0; i < x.as<float>().size(); ++i)
      x.as<float>()[i] = old.as<float>()[i] + static_cast<float>(stream.uniform());
    sample.set("x", x);
  }
  std::string fingerprint() const override { return "jitter"; }
  bool random() const override { return true; }
};

// Adds to each sample the first value of a drawn partner of its group, as it was before mixing.
class PartnerMix : public GroupTransform {
 public:
  void apply(std::span<Sample> group, const DrawKey& key) const override {
    std::vector<float> first;
    for (const Sample& sample : group) first.push_back(sample.find("x")->as<float>()[0]);
    for (Sample& sample : group) {
      KeyedStream stream(key.seed, key.epoch, static_cast<uint64_t>(sample.id), 12);
      const float add = first[static_cast<size_t>(stream.uniform_int(0, static_cast<int64_t>(group.size()) - 1))];
      Array x = Array::empty(Dtype::F32, sample.find("x")->shape());
      for (size_t i = 0; i < x.as<float>().size(); ++i)
        x.as<float>()[i] = sample.find("x")->as<float>()[i] + 1000.0f * add;
      sample.set("x", x);
    }
  }
  std::string fingerprint() const override { return "partner"; }
};

// Rows that can be collated without a Sample each, by way of the plain collation: the fast path's contract without its
// speed. Rows for which `bad` is true cannot be used.
class TableSource : public Source, public BatchReader {
 public:
  TableSource(std::shared_ptr<Source> inner, std::function<bool(int64_t)> bad)
      : inner_(std::move(inner)), bad_(std::move(bad)) {}
  int64_t size() const override { return inner_->size(); }
  ReadResult read(int64_t index, measure::StageClock::Slot& slot) const override {
    if (bad_(index)) return BadSample{name(index), "bad on purpose."};
    return inner_->read(index, slot);
  }
  double length(int64_t index) const override { return inner_->length(index); }
  std::string length_unit() const override { return inner_->length_unit(); }
  std::string name(int64_t index) const override { return inner_->name(index); }
  uint64_t fingerprint() const override { return inner_->fingerprint(); }
  bool can_collate(const CollateSpec&) const override { return true; }
  std::vector<BadRow> read_batch(std::span<const int64_t> indices, const BatchPlan& plan, Batch& batch,
                                 measure::StageClock::Slot& slot) const override {
    std::vector<BadRow> wrong;
    std::vector<Sample> samples;
    for (size_t i = 0; i < indices.size(); ++i) {
      if (bad_(indices[i]))
        wrong.push_back({i, {name(indices[i]), "bad on purpose."}});
      else
        samples.push_back(std::get<Sample>(inner_->read(indices[i], slot)));
    }
    if (!wrong.empty()) return wrong;
    std::vector<const Sample*> rows;
    for (const Sample& sample : samples) rows.push_back(&sample);
    collate(rows, plan.collate, plan.allocator != nullptr ? *plan.allocator : heap_arrays(), batch);
    return {};
  }

 private:
  std::shared_ptr<Source> inner_;
  std::function<bool(int64_t)> bad_;
};

inline CollateSpec numbered_collate() {
  CollateSpec spec;
  spec.fields.push_back({"x", 0.0, 1, "x_len", false});
  spec.fields.push_back({"label", 0.0, 1, "", false});
  spec.counted_field = "x";
  return spec;
}

struct LoaderOptions {
  PlanSettings plan{.seed = 5, .shuffle = true, .batch_size = 4};
  LoaderSettings loader;
  bool jitter = false, mix = false;
  bool whole_batches = false;  // the source must be a BatchReader
  std::shared_ptr<FeatureCache> cache;
  std::shared_ptr<const SampleTransform> transform;  // before the jitter
  std::shared_ptr<MemoryBudget> budget;
};

inline std::unique_ptr<OrderedLoader> make_loader(std::shared_ptr<Source> source, LoaderOptions options) {
  const Source* raw = source.get();
  auto planner =
      std::make_shared<Planner>(options.plan, PlanSource{source->size(), [raw](int64_t i) { return raw->length(i); },
                                                         source->locality_groups(), source->fingerprint()});
  std::vector<std::shared_ptr<const SampleTransform>> transforms;
  if (options.transform != nullptr) transforms.push_back(options.transform);
  if (options.jitter) transforms.push_back(std::make_shared<JitterTransform>());
  StretchRunner::Parts parts;
  if (options.whole_batches) parts.batch_reader = dynamic_cast<const BatchReader*>(raw);
  parts.chain =
      std::make_shared<SampleChain>(std::move(source), std::move(transforms), options.cache, planner, options.budget);
  options.loader.split.mixes_groups = options.mix;
  if (options.mix) parts.group_transform = std::make_shared<PartnerMix>();
  parts.collate = numbered_collate();
  return std::make_unique<OrderedLoader>(std::move(options.loader), planner, std::move(parts));
}

// Ids and every byte of every field.
inline uint64_t batch_hash(const Batch& batch, uint64_t hash) {
  hash = hash64(std::as_bytes(std::span(batch.sample_ids)), hash);
  for (const auto& [name, array] : batch.fields) {
    hash = hash64(name, hash);
    hash = hash64(std::span(static_cast<const std::byte*>(array.data()), array.num_bytes()), hash);
  }
  return hash;
}

}  // namespace redline::data::testing_engine
