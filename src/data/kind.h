// A kind of data: how it is opened, what happens to its samples and in which order, how they become a batch, what
// their lengths count. The loader is built from a kind and never asks which one it has.
//
// A task brings a kind of its own by deriving from Kind, or from one of data/kinds.h, and returning it from
// Task::kind(). Its option rows are the task's: a section below the data set's ("model.train_ds.NAME") that its
// TaskConfig adds, so they are known when the kind is made. A sample is any number of named arrays: several pictures
// and their matrices are fields of one sample. Threads: a kind is asked while a loader is built, by one thread.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset_config.h"
#include "data/plan/plan.h"
#include "data/source.h"
#include "data/transform.h"

namespace redline::data {

class Kind;

// What the runtime and the task want of the data; train fills it from the Task.
struct TaskNeeds {
  std::shared_ptr<const Kind> kind;
  CollateSpec collate;  // may be empty: then Kind::collate
  // Before normalisation, for kinds that normalise (pictures: "image" U8 [H, W, 3]); of other kinds before
  // sample_transform.
  std::shared_ptr<const SampleTransform> raw_transform;
  std::shared_ptr<const SampleTransform> sample_transform;  // after the kind's own
  std::shared_ptr<const GroupTransform> group_transform;
  bool batch_statistics = false;
  bool statistics_across_ranks = false;  // and they are of all ranks together
  bool channels_last = false;            // pictures are written as the device's convolutions read them

  // Mix groups (batches of batch_size) per optimiser step, over all ranks: accumulate_grad_batches times whatever the
  // trainer counts for ranks. Ranks only split a step.
  int64_t accumulate = 1;
  int rank = 0, world = 1;

  HoldOut hold_out{};
  bool training = true;                 // false: validation; no work ahead into the next epoch, synth's validation part
  std::filesystem::path run_directory;  // bad_samples.jsonl goes there; empty: counted only
};

struct OpenedData {
  std::shared_ptr<Source> source;
  std::vector<int64_t> part_sizes;  // one per manifest list (static buckets, concat); empty when there is one
  bool tarred = false;
  bool float_pictures = false;                         // pictures that are normalised numbers already
  std::vector<std::filesystem::path> noise_manifests;  // also those that synth made
};

using Transforms = std::vector<std::shared_ptr<const SampleTransform>>;

class Kind {
 public:
  virtual ~Kind() = default;
  virtual std::string name() const = 0;
  // False when the options name no data and the kind has none of its own.
  virtual bool given(const DatasetConfig& config, bool training) const;
  // Throws ConfigError where the options contradict the kind, DataError where the data cannot be used. `config` must be
  // resolved.
  virtual OpenedData open(const DatasetConfig& config, bool training) const = 0;
  // The row of a data set that names data of this kind.
  virtual std::string data_key() const { return "path"; }

  // What a sample goes through between decoding and the batch, in order. Without a word of the kind: sequences are cut
  // to max_sequence_length (a task's own transform cuts by itself: only it knows how many numbers a step has), then the
  // task's.
  virtual Transforms transforms(const DatasetConfig& config, const TaskNeeds& needs, const OpenedData& data) const;
  // What mixes the samples of a group; null: nothing.
  virtual std::shared_ptr<const GroupTransform> group_transform(const DatasetConfig& config,
                                                                const TaskNeeds& needs) const;
  // A batch for data without a task.
  virtual CollateSpec collate(const DatasetConfig& config, const Source& source) const;

  // Elements of the longest sample there may be, for padding to a fixed length; 0: the options do not say. nullopt: all
  // samples are alike, nothing is padded.
  virtual std::optional<int64_t> longest(const DatasetConfig& config) const {
    return config.max_sequence_length.value_or(0);
  }
  // Elements of a sample for each unit of its length in the plan (audio: samples of a second).
  virtual double items_per_length(const DatasetConfig&) const { return 1.0; }
  virtual std::string length_rate_name() const { return {}; }  // e.g. "audio_seconds_per_second"; empty: not told
  virtual bool decodes_pictures() const { return false; }
};

// Data in files that the options name (data_key()), or that synth makes.
class StoredKind : public Kind {
 public:
  OpenedData open(const DatasetConfig& config, bool training) const final;
  virtual std::string synth_name() const = 0;  // synth.kind of this data

 protected:
  // Throws ConfigError naming a key that is for another kind.
  virtual void refuse_foreign_keys(const DatasetConfig& config) const = 0;
  virtual OpenedData open_files(const DatasetConfig& config) const = 0;
  virtual config::Node DatasetConfig::*named_by() const { return &DatasetConfig::path; }  // the member of data_key()
  void refuse(bool given, const char* key, const char* fits) const;
  void refuse_audio_keys(const DatasetConfig& config) const;
};

}  // namespace redline::data
