// The contract between a model and the runtime. The runtime (train, tune, doctor) knows only this.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config/fields.h"
#include "config/job.h"
#include "core/machine_facts.h"
#include "data/kind.h"
#include "data/transform.h"
#include "task/batch.h"
#include "task/context.h"

namespace redline::task {

// A loss that averages over `weight` items (sequences, masked frames, images). Accumulation sums value * weight over
// micro-batches and divides once by the total weight, so it equals the large batch. weight 0 is allowed (nothing to
// learn from): value must be 0 then.
struct Loss {
  torch::Tensor value;                           // scalar, float32, needs grad in training
  torch::Tensor weight;                          // scalar, float32
  std::map<std::string, torch::Tensor> metrics;  // detached scalars, averaged with the same weight; names in metrics()
};

struct ParameterGroup {
  std::string name;
  std::vector<std::string> parameters;  // names in module().named_parameters()
  double lr_scale = 1.0;
  std::optional<double> weight_decay;  // default: the optimiser's
};

struct MetricInfo {
  std::string name, unit, sentence;
};

// Looks at the model every so often (e.g. the posterior-collapse monitor); its cost is the Monitor phase.
class Monitor {
 public:
  virtual ~Monitor() = default;
  virtual int64_t update_every_steps() const = 0;  // 0: not by steps
  virtual int64_t plot_every_steps() const = 0;
  // The same counted in epochs, for a monitor that looks at whole sets: asked at the end of every so many epochs, after
  // the epoch's validation where it has one. 0: not by epochs.
  virtual int64_t update_every_epochs() const { return 0; }
  virtual int64_t plot_every_epochs() const { return 0; }
  // After a committed step, with what the task kept from its last forward. Returns metrics to record.
  virtual std::map<std::string, double> update(int64_t step) = 0;
  // What update() found, in a line for the person at a run (a trial says nothing); empty: nothing worth a line.
  virtual std::vector<std::string> found() const { return {}; }
  // Files written into `directory` (SVG or PNG); returns their paths.
  virtual std::vector<std::string> plot(int64_t step, const std::string& directory) = 0;
  virtual std::string state_json() const { return "{}"; }  // for checkpoints
  virtual void load_state_json(const std::string&) {}
  // What is too large for text, e.g. the latest posteriors: with the JSON all that update() looks at, so that a resumed
  // run records what an undisturbed one would. Loaded after it; empty when the checkpoint has none.
  virtual std::map<std::string, torch::Tensor> state_tensors() const { return {}; }
  virtual void load_state_tensors(const std::map<std::string, torch::Tensor>&) {}
};

class CompiledPart;  // task/compiled_part.h

class Task {
 public:
  virtual ~Task() = default;
  // Parameters and buffers under the reference project's names.
  virtual torch::nn::Module& module() = 0;
  virtual BatchSchema schema() const = 0;
  // Training and validation forward; ctx.training() tells which. Outputs (ctx.output) under the fixture's names.
  virtual Loss loss(const Batch& batch, Context& ctx) = 0;
  // What `redline predict` writes, e.g. embeddings; default: the outputs of loss().
  virtual std::map<std::string, torch::Tensor> predict(const Batch& batch, Context& ctx);
  virtual std::vector<MetricInfo> metrics() const { return {}; }
  // Whole-set validation metrics that are not means over batches (IoU, active units): sums that loss() fed in
  // validation are handed over and begin anew; those of several ranks are added; metrics are made of the added ones.
  virtual std::vector<double> take_validation_sums() { return {}; }
  virtual std::map<std::string, double> finish_validation(const std::vector<double>& sums) {
    static_cast<void>(sums);
    return {};
  }
  // What such metrics need of samples rather than of sums (embeddings): rows of this rank's part of the validation, the
  // same tensors with the same columns on every rank, none where there are no samples; asked after the sums are taken.
  // Those of all ranks, one below the other, are handed back before finish_validation().
  virtual std::vector<torch::Tensor> validation_rows() { return {}; }
  virtual void set_validation_rows(const std::vector<torch::Tensor>& rows) { static_cast<void>(rows); }

  virtual std::vector<ParameterGroup> parameter_groups() const { return {}; }  // empty: one group, all parameters
  // Names of the groups the next optimiser step updates (weights, moments and weight decay); empty: all. Gradients and
  // their norm are of all parameters either way. Asked once before each step; e.g. aggressive encoder training updates
  // halves in turn.
  virtual std::vector<std::string> groups_to_update() const { return {}; }
  // True when layers look across the batch: then the micro-batch size counts as `optimisation`.
  virtual bool batch_statistics() const { return false; }
  // False for a model that packs its batch, so that padding costs it nothing.
  virtual bool computes_padding() const { return true; }
  // Floating-point operations of forward + backward for one sample of the given length (plan units).
  virtual double flops_per_sample(double length) const = 0;
  // A deterministic batch of the longest samples allowed, for probing memory.
  virtual Batch worst_case_batch(int64_t batch_size) const = 0;

  // How data should prepare samples for this task.
  virtual data::CollateSpec collate() const = 0;
  // Before normalisation, where the kind normalises: pictures are still "image" U8 [H, W, 3] (RandAugment's place).
  virtual std::shared_ptr<data::SampleTransform> raw_transform() const { return nullptr; }
  // After the kind's own transforms.
  virtual std::shared_ptr<data::SampleTransform> sample_transform() const { return nullptr; }
  virtual std::shared_ptr<data::GroupTransform> group_transform() const { return nullptr; }
  // The kind of data the task reads: one of data/kinds.h, or its own, made with its config.
  virtual std::shared_ptr<const data::Kind> kind() const = 0;

  virtual std::unique_ptr<Monitor> monitor() { return nullptr; }
  // Called before each attempt at a step. What loss() noted since the last committed() is of an attempt that was given
  // up (not finite, out of memory, a stop) and must be forgotten.
  virtual void begin_attempt() {}
  // Called after a committed step (KL schedules and the like advance here, never in loss()).
  virtual void committed(int64_t step) { (void)step; }
  // What committed() will look at of this step, as sums over its samples: those of several ranks are added in between.
  // As many on every rank.
  virtual std::vector<double> step_sums() const { return {}; }
  virtual void set_step_sums(const std::vector<double>& sums) { static_cast<void>(sums); }
  // Task state beyond parameters and buffers, for checkpoints.
  virtual std::string state_json() const { return "{}"; }
  virtual void load_state_json(const std::string&) {}
  // What a compiled step computes of loss(); null: nothing. Belongs to the task.
  virtual CompiledPart* compiled_part() { return nullptr; }
  // True for image tasks whose module should be channels-last when trainer.channels_last is on.
  virtual bool supports_channels_last() const { return false; }
};

// A task's own configuration: the `model` section and whatever else it owns. Made before reading the file, so that the
// schema is known.
class TaskConfig {
 public:
  virtual ~TaskConfig() = default;
  virtual void add_sections(config::Schema& schema) = 0;
  virtual void resolve(const MachineFacts& machine) { (void)machine; }
  // The validation metric that `auto` of the checkpoints' and early stopping's `monitor` stands for, lower is better.
  // After resolve(). Not val_loss when the loss changes its meaning over training (a KL term that grows): its values
  // are then no measure of progress.
  virtual std::string monitor_metric() const { return "val_loss"; }
  // Options in force that count optimiser steps in a way that no other batch can keep the meaning of: a tuner then
  // leaves the batch alone and names them.
  virtual std::vector<std::string> bound_to_batch() const { return {}; }
  // Draws initial weights from `seed` alone.
  virtual std::unique_ptr<Task> build(uint64_t seed) const = 0;
};

}  // namespace redline::task
