// A job of the tests' own, shaped like NeMo's files, so that the mechanism is tested without any room above this one.
// Not part of the program: only tests and bench/config_bench.cpp include it.
#pragma once

#include <string>
#include <vector>

#include "config/job.h"
#include "core/error.h"

namespace redline::config::example {

struct Strategy {
  std::string name = "auto";
  bool gradient_as_bucket_view = false;
  bool static_graph = false;
  static Table<Strategy> fields() {
    Table<Strategy> t;
    t.about("How ranks work together.");
    t.add("name", &Strategy::name, "Kind of parallelism.").choices({"auto", "ddp", "ddp_find_unused_parameters_true"});
    t.add("gradient_as_bucket_view", &Strategy::gradient_as_bucket_view,
          "Gradients live in the buckets they are sent from.");
    t.add("static_graph", &Strategy::static_graph, "The same parameters get gradients in every step.");
    t.shorthand("name").target("lightning.pytorch.strategies.DDPStrategy").target("SingleDeviceStrategy");
    t.accept("process_group_backend", {"gloo", "null"}, "only Gloo is linked");
    return t;
  }
};

struct Trainer {
  Auto<int> devices;
  std::string precision = "32-true";
  int64_t max_steps = -1;
  int accumulate_grad_batches = 1;
  double gradient_clip_val = 0.0;
  bool detect_anomaly = false;
  bool enable_progress_bar = true;
  std::optional<double> limit_val_batches;
  double save_every_seconds = 600.0;
  int64_t max_buffer_bytes = int64_t{1} << 30;
  Strategy strategy;
  static Table<Trainer> fields() {
    const auto amp = [](const Node& value) {
      const auto on = value.as_bool();
      if (!on) throw ConfigError("use_amp must be true or false.");
      return Node::scalar(*on ? "16-mixed" : "32-true");
    };
    Table<Trainer> t;
    t.about("The training loop.");
    t.add("devices", &Trainer::devices, "Number of ranks; -1 is all devices.").at_least(-1).effect(Effect::Numerics);
    t.add("precision", &Trainer::precision, "Arithmetic of forward and backward.")
        .choices({"32-true", "32", "16-mixed", "16", "bf16-mixed"})
        .effect(Effect::Numerics)
        .tunable()
        .bool_alias(".use_amp", amp, "true is 16-mixed");
    t.add("max_steps", &Trainer::max_steps, "Optimiser steps; -1 is no limit.")
        .at_least(-1)
        .alias(".runner.max_iters", {}, "counts micro-iterations");
    t.add("accumulate_grad_batches", &Trainer::accumulate_grad_batches, "Micro-batches per optimiser step.")
        .at_least(1)
        .effect(Effect::Nothing)
        .tuned_by("accumulation")
        .alias("gradient_accumulation_steps")
        .alias(".gradient_accumulation_steps")
        .alias(".optimizer_config.accumulative_counts");
    t.add("gradient_clip_val", &Trainer::gradient_clip_val, "Largest norm of the gradient; 0 is off.")
        .at_least(0)
        .effect(Effect::Optimisation);
    t.add("detect_anomaly", &Trainer::detect_anomaly, "Look for NaN in every operator.");
    t.add("enable_progress_bar", &Trainer::enable_progress_bar, "Show progress.");
    t.add("limit_val_batches", &Trainer::limit_val_batches, "Fraction of validation to run.").range(0, 1);
    t.add("save_every_seconds", &Trainer::save_every_seconds, "Longest time without a checkpoint.")
        .unit("seconds")
        .above(0);
    t.add("max_buffer_bytes", &Trainer::max_buffer_bytes, "Memory for batches that wait.")
        .unit("bytes")
        .at_least(0)
        .effect(Effect::Nothing);
    t.group("strategy", &Trainer::strategy);
    t.accept("accelerator", {"cpu", "auto"}, "the device is found at start");
    t.accept("logger", {"false"}, "the run record takes its place");
    return t;
  }
};

struct Loader {
  std::vector<std::string> manifest_filepath;
  Auto<int> batch_size = 8;
  Auto<int> num_workers;
  bool pin_memory = false;
  bool shuffle = true;
  std::optional<double> max_duration;
  int max_sequence_length = 512;
  int sample_rate = 16000;
  static Table<Loader> fields() {
    Table<Loader> t;
    t.add("manifest_filepath", &Loader::manifest_filepath, "Manifests to read.");
    t.add("batch_size", &Loader::batch_size, "Samples per micro-batch.")
        .at_least(1)
        .effect(Effect::Nothing)
        .tuned_by("batch", {"2x", "4x"})
        .alias("samples_per_gpu");
    t.add("num_workers", &Loader::num_workers, "Worker threads.")
        .range(0, 256)
        .effect(Effect::Nothing)
        .tunable({"0", "2", "4"})
        .same_run()
        .alias("workers_per_gpu");
    t.add("pin_memory", &Loader::pin_memory, "Collate into pinned memory.").effect(Effect::Nothing).tunable();
    t.add("shuffle", &Loader::shuffle, "A new order in every epoch.");
    t.add("max_duration", &Loader::max_duration, "Longer samples are left out.").unit("seconds").above(0);
    t.add("max_sequence_length", &Loader::max_sequence_length, "Longer sequences are cut.").at_least(1);
    t.add("sample_rate", &Loader::sample_rate, "Of the audio.").unit("Hz").at_least(1);
    return t;
  }
};

struct Encoder {
  int d_model = 512;
  int n_layers = 17;
  double dropout = 0.1;
  std::vector<int> att_context_size = {-1, -1};
  std::vector<std::vector<int>> att_contexts;
  static Table<Encoder> fields() {
    Table<Encoder> t;
    t.add("d_model", &Encoder::d_model, "Width.").at_least(1).effect(Effect::Model);
    t.add("n_layers", &Encoder::n_layers, "Depth.").range(1, 200).effect(Effect::Model);
    t.add("dropout", &Encoder::dropout, "Share of values dropped.").at_least(0).below(1);
    t.add("att_context_size", &Encoder::att_context_size, "Frames to the left and right.").at_least(-1);
    t.add("att_contexts", &Encoder::att_contexts, "Several of them.");
    t.target("nemo.collections.asr.modules.ConformerEncoder");
    return t;
  }
};

struct Augment {
  int freq_masks = 0;
  double time_width = 0.05;
  static Table<Augment> fields() {
    Table<Augment> t;
    t.add("freq_masks", &Augment::freq_masks, "Bands to mask.").at_least(0);
    t.add("time_width", &Augment::time_width, "Share of the time to mask.").range(0, 1);
    return t;
  }
};

struct Model {
  int sample_rate = 16000;
  int num_classes = 8192;
  Encoder encoder;
  std::optional<Augment> spec_augment;
  Node extra;
  static Table<Model> fields() {
    Table<Model> t;
    t.add("sample_rate", &Model::sample_rate, "Of the audio.").unit("Hz").at_least(1);
    t.add("num_classes", &Model::num_classes, "Targets.").at_least(2);
    t.add("extra", &Model::extra, "Read by the model itself.");
    t.group("encoder", &Model::encoder, "The conformer.");
    t.group("spec_augment", &Model::spec_augment, "Masks on the spectrogram.");
    return t;
  }
};

struct Schedule {
  std::string name = "NoamAnnealing";
  int64_t warmup_steps = 0;
  std::optional<double> warmup_ratio;
  static Table<Schedule> fields() {
    Table<Schedule> t;
    t.add("name", &Schedule::name, "Shape of the schedule.").choices({"NoamAnnealing", "CosineAnnealing", "constant"});
    t.add("warmup_steps", &Schedule::warmup_steps, "Steps of warm-up.").at_least(0);
    t.add("warmup_ratio", &Schedule::warmup_ratio, "Or as a share of all steps.").range(0, 1);
    return t;
  }
};

struct Optim {
  std::string name = "adamw";
  double lr = 1e-3;
  std::vector<double> betas = {0.9, 0.999};
  double weight_decay = 0.0;
  std::optional<Schedule> sched;
  static Table<Optim> fields() {
    Table<Optim> t;
    t.add("name", &Optim::name, "Optimiser.").choices({"adamw", "adam", "sgd"});
    t.add("lr", &Optim::lr, "Learning rate.").above(0).effect(Effect::Optimisation).alias(".learning_rate");
    t.add("betas", &Optim::betas, "Decay of the moments.").at_least(0).below(1);
    t.add("weight_decay", &Optim::weight_decay, "Decoupled decay.").at_least(0);
    t.group("sched", &Optim::sched, "Learning-rate schedule.");
    return t;
  }
};

struct Experiment {
  std::optional<std::string> exp_dir;
  int save_top_k = 1;
  static Table<Experiment> fields() {
    Table<Experiment> t;
    t.add("exp_dir", &Experiment::exp_dir, "Where runs go.").alias(".work-dir").alias(".run-dir");
    t.add("save_top_k", &Experiment::save_top_k, "Checkpoints to keep.").at_least(0);
    t.accept("create_wandb_logger", {"false"}, "nothing is sent anywhere");
    t.accept("wandb_logger_kwargs", {}, "nothing is sent anywhere");
    return t;
  }
};

struct Root {
  std::string name = "run";
  std::string task = "speech_ssl";
  int64_t seed = 0;
  static Table<Root> fields() {
    Table<Root> t;
    t.add("name", &Root::name, "Name of the run.");
    t.add("task", &Root::task, "Which model and loss.");
    t.add("seed", &Root::seed, "Of every random draw.");
    return t;
  }
};

struct Job {
  Root root;
  Trainer trainer;
  Model model;
  Loader train_ds, validation_ds;
  Optim optim;
  Experiment experiment;
  Schema schema;

  Job() {
    schema.section("", root);
    schema.section("trainer", trainer);
    schema.section("model", model);
    schema.section("model.train_ds", train_ds);
    schema.section("model.validation_ds", validation_ds, true);
    schema.section("model.optim", optim);
    schema.section("exp_manager", experiment);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Resolved read(const RequestSource& source) { return bind(read_request(source, schema), schema); }
  Resolved read_words(std::vector<std::string> words) {
    RequestSource source;
    source.overrides = std::move(words);
    return read(source);
  }
};

}  // namespace redline::config::example
