#include "train/options/trainer_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/strings.h"
#include "device/machine.h"

namespace redline::train {

namespace {

using config::Counts;
using config::Effect;
using config::Node;

// Epochs times steps of an epoch (32 bits number samples) stay within 64 bits.
constexpr double kMostEpochs = 1'000'000'000;
constexpr double kMostBatches = 1 << 20;
constexpr double kMostSteps = 1e15;

// mmcv's runner counts iterations on across epochs, or begins anew with each.
Node validation_of_runner(const Node& value) {
  if (value.text() == "IterBasedRunner") return Node();
  if (value.text() == "EpochBasedRunner") return Node::scalar("1");
  throw ConfigError(fmt::format("{}: runner.type is '{}'; supported: IterBasedRunner, EpochBasedRunner.",
                                value.origin.text(), printable(value.text())));
}

// mmcv's optimiser hooks: those for FP16 turn mixed precision on by their name alone.
Node precision_of_hook(const Node& value) {
  const std::string& name = value.text();
  if (name == "Fp16OptimizerHook" || name == "GradientCumulativeFp16OptimizerHook") return Node::scalar("16-mixed");
  if (name == "OptimizerHook" || name == "GradientCumulativeOptimizerHook") return Node::scalar("auto");
  throw ConfigError(
      fmt::format("{}: optimizer_config.type is '{}'; supported: OptimizerHook, Fp16OptimizerHook and their "
                  "GradientCumulative forms.",
                  value.origin.text(), printable(name)));
}

// --use_amp, --amp, fp16: a switch in other tools, a precision here.
std::function<Node(const Node&)> switch_to_precision(const char* on) {
  return [on](const Node& value) {
    const auto yes = value.as_bool();
    if (!yes)
      throw ConfigError(
          fmt::format("{}: expected true or false, found '{}'.", value.origin.text(), printable(value.text())));
    return Node::scalar(*yes ? on : "32-true");
  };
}

void add_precision_rows(config::Table<TrainerConfig>& table) {
  using T = TrainerConfig;
  table
      .add("precision", &T::precision,
           "32-true, bf16-mixed or 16-mixed (also 32, bf16, 16); auto: 16-mixed when a loss scale is given, else "
           "32-true. Weights stay fp32.")
      .effect(Effect::Numerics)
      .tuned_by("precision", {"32-true", "bf16-mixed", "16-mixed"})
      .flag("precision")
      .bool_alias(".use_amp", switch_to_precision("16-mixed"), "true is 16-mixed")
      .bool_alias(".amp", switch_to_precision("16-mixed"), "true is 16-mixed")
      .bool_alias(".bf16", switch_to_precision("bf16-mixed"), "true is bf16-mixed")
      .alias(".optimizer_config.type", precision_of_hook, "mmcv's hooks with Fp16 in their name are 16-mixed");
  table.add("precision_strict", &T::precision_strict,
            "Run 16-mixed as asked even where the processor has no fp16 units; else it becomes bf16-mixed or 32-true.");
  table.group("amp", &T::amp, "Loss scaling under 16-mixed.");
  table.add("channels_last", &T::channels_last, "Images as channels-last in memory; auto: for tasks that support it.")
      .effect(Effect::Numerics)
      .tuned_by("channels_last");
  table
      .add("intra_op_threads", &T::intra_op_threads,
           "Threads inside operators; auto: the cores this process may use at the first start, then kept in the "
           "checkpoint.")
      .at_least(1)
      .effect(Effect::Numerics)
      .tuned_by("threads");
  table.add("deterministic", &T::deterministic, "Only kernels that give the same bits every time.")
      .effect(Effect::Numerics);
  table.add("benchmark", &T::benchmark, "Let cuDNN choose algorithms by timing them; nothing on CPU.")
      .alias(".cudnn_benchmark");
}

// torch.compile's modes: how it compiles is chosen here, so every mode but off is the same switch.
Node compile_of_mode(const Node& value) {
  const std::string& mode = value.text();
  for (const char* known : {"default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"})
    if (mode == known) return Node::scalar("true");
  throw ConfigError(fmt::format("{}: compile.mode is '{}'; supported: default, reduce-overhead, max-autotune.",
                                value.origin.text(), printable(mode)));
}

Node compile_of_switch(const Node& value) {
  const auto yes = value.as_bool();
  if (!yes)
    throw ConfigError(
        fmt::format("{}: expected true or false, found '{}'.", value.origin.text(), printable(value.text())));
  return Node::scalar(*yes ? "true" : "false");
}

void add_compile_rows(config::Table<TrainerConfig>& table) {
  using T = TrainerConfig;
  table
      .add("compile", &T::compile,
           "The step's forward and backward as one compiled call: true compiles before the first step, auto in the "
           "background and only uses it where it is faster. Needs the Python environment and a C++ compiler; without, "
           "training goes on eagerly.")
      .choices({"false", "true", "auto"})
      .effect(Effect::Numerics)
      .tuned_by("compile", {"true"})
      .bool_alias(".compile_model", compile_of_switch)
      .bool_alias(".torch_compile", compile_of_switch)
      .alias(".compile.mode", compile_of_mode, "any mode is true");
  table.add("compile_time_limit", &T::compile_time_limit, "Give a compilation up after this time, e.g. 10m.")
      .same_run();
  table
      .add("compile_packages", &T::compile_packages,
           "Shapes of batches that are compiled at most; rarer ones stay eager.")
      .range(1, 64)
      .same_run();
}

void add_length_rows(config::Table<TrainerConfig>& table) {
  using T = TrainerConfig;
  table.add("max_epochs", &T::max_epochs, "Stop after so many epochs; -1: no limit.")
      .counts(Counts::Epochs)
      .range(-1, kMostEpochs)
      .alias(".epochs")
      .alias(".num_train_epochs");
  table.add("max_steps", &T::max_steps, "Stop after so many optimiser steps; -1: no limit.")
      .counts(Counts::Steps)
      .range(-1, kMostSteps)
      .flag("max_steps");
  table
      .add("max_iters", &T::max_iters,
           "Stop after so many micro-iterations (mmcv's count), divided by the accumulation; with max_steps given too, "
           "the "
           "earlier end counts.")
      .unit("micro-iterations")
      .counts(Counts::Batches)
      .range(1, kMostSteps)
      .alias(".runner.max_iters", {}, "counts micro-iterations");
  table
      .add("max_time", &T::max_time,
           "Stop with a checkpoint after this much time, e.g. 4h or 00:04:00:00 (DD:HH:MM:SS).")
      .same_run();
  table.add("limit_train_batches", &T::limit_train_batches, "Batches of an epoch, as a number or a share.")
      .counts(Counts::Batches);
  table.add("limit_val_batches", &T::limit_val_batches, "Batches of a validation, as a number or a share.")
      .effect(Effect::Nothing);
  table.add("limit_test_batches", &T::limit_test_batches,
            "Batches of an evaluation of test_ds by `redline eval`, as a number or a share; without a test_ds, "
            "limit_val_batches counts.");
  table.add("fast_dev_run", &T::fast_dev_run, "One training and one validation batch, to see that everything runs.");
}

void add_cadence_rows(config::Table<TrainerConfig>& table) {
  using T = TrainerConfig;
  table
      .add("val_check_interval", &T::val_check_interval,
           "Validate after so many batches (a whole number, before accumulation) or after this share of an epoch (1.0 "
           "= once per epoch).")
      .tuned_by("validation")
      .cadence(Counts::Batches)
      .alias(".evaluation.interval", {}, "counts micro-iterations (by_epoch: false)");
  table
      .add("check_val_every_n_epoch", &T::check_val_every_n_epoch,
           "Validate only in every n-th epoch; null: a whole number in val_check_interval counts on across epochs.")
      .unit("epochs")
      .at_least(1)
      .alias(".runner.type", validation_of_runner, "IterBasedRunner is null, EpochBasedRunner 1");
  table
      .add("num_sanity_val_steps", &T::num_sanity_val_steps,
           "Validation batches run before training, to fail early; -1: all.")
      .at_least(-1);
  table.add("log_every_n_steps", &T::log_every_n_steps, "Write metrics every so many optimiser steps.")
      .cadence(Counts::Steps)
      .at_least(1)
      .tuned_by("log")
      .same_run()
      .flag("log_every_n_steps")
      .alias(".log_config.interval")
      .alias(".logging_steps");
  table.add("enable_progress_bar", &T::enable_progress_bar, "A live line on a terminal, plain lines elsewhere.")
      .same_run();
  table
      .add("enable_model_summary", &T::enable_model_summary,
           "Print the model's modules and parameter counts at the start.")
      .same_run()
      .flag("enable_model_summary");
  table
      .add("detect_anomaly", &T::detect_anomaly,
           "Autograd's anomaly mode: slow, names the operation whose backward gave NaN.")
      .effect(Effect::Nothing)
      .flag("detect_anomaly");
  table
      .add("drift_ratio", &T::drift_ratio,
           "Say so when steps become slower than this many times the run's own start; 0: never.")
      .at_least(0)
      .same_run();
}

void add_step_rows(config::Table<TrainerConfig>& table) {
  using T = TrainerConfig;
  table
      .add("accumulate_grad_batches", &T::accumulate_grad_batches,
           "Batches per optimiser step; the result equals one large batch, also for losses that average over a varying "
           "number of items.")
      .range(1, kMostBatches)
      .effect(Effect::Optimisation)
      .tuned_by("accumulation")
      .flag("accumulate_grad_batches")
      .alias(".gradient_accumulation_steps")
      .alias(".runner.accumulative_counts")
      .alias(".accumulative_counts")
      .alias(".optimizer_config.cumulative_iters")
      .alias(".update_freq");
  table.add("gradient_clip_val", &T::gradient_clip_val, "Largest gradient norm (or value); 0: no clipping.")
      .at_least(0)
      .effect(Effect::Optimisation)
      .alias(".optimizer_config.grad_clip.max_norm")
      .alias(".clip_grad")
      .alias(".max_grad_norm");
  table
      .add("gradient_clip_algorithm", &T::gradient_clip_algorithm,
           "Clip the norm of all gradients together, or each value.")
      .choices({"norm", "value"});
  table.group("guards", &T::guards, "What happens on NaN, overflow and out of memory.");
  table
      .add("memory_limit", &T::memory_limit,
           "Most tensor memory, e.g. 8GiB; null: what the container or machine has, less a reserve for loader buffers "
           "and library scratch.")
      .same_run()
      .flag("memory_limit");
}

void add_device_rows(config::Table<TrainerConfig>& table) {
  using T = TrainerConfig;
  table.add("accelerator", &T::accelerator, "Where to compute.").choices({"auto", "cpu", "gpu", "cuda"});
  table
      .add("devices", &T::devices,
           "Number of ranks (processes, one per GPU) on each machine; -1: all GPUs, or one process on CPU. They share "
           "each "
           "batch: batch_size is that of all together. Without a launcher `redline train` starts them itself.")
      .same_run()
      .flag("devices");
  table.add("gpu_ids", &T::gpu_ids, "Which GPUs, e.g. 0,1; no effect on CPU.").alias(".gpu-ids");
  table.add("num_nodes", &T::num_nodes, "Number of machines; above 1 a launcher on each starts the ranks.")
      .at_least(1)
      .same_run();
  table.group("strategy", &T::strategy, "How ranks work together.");
  table.add("sync_batchnorm", &T::sync_batchnorm, "BatchNorm statistics over all ranks; nothing with one rank.")
      .effect(Effect::Optimisation);
}

constexpr int64_t kMostDevices = 1024;  // ranks on a machine, as `redline launch -n`

std::string parse_devices(const std::string& text) {
  if (text == "auto") return "1";
  const auto count = parse_int(text);
  if (!count || (*count < 1 && *count != -1) || *count > kMostDevices)
    throw ConfigError(fmt::format("trainer.devices is '{}'; give a number of devices (at most {}), or -1 for all.",
                                  printable(text), kMostDevices));
  return text;
}

}  // namespace

config::Table<StrategyConfig> StrategyConfig::fields() {
  using T = StrategyConfig;
  config::Table<T> table;
  table.about("How ranks work together; nothing with one rank.")
      .shorthand("name")
      .target("DDPStrategy")
      .target("SingleDeviceStrategy");
  table.add("name", &T::name, "auto or ddp; ranks are always processes with gradient buckets.")
      .same_run()
      .choices({"auto", "ddp", "ddp_spawn", "ddp_notebook", "ddp_find_unused_parameters_true",
                "ddp_find_unused_parameters_false", "single_device"});
  table
      .add("gradient_as_bucket_view", &T::gradient_as_bucket_view,
           "Gradients live in the buckets that are reduced, saving a copy.")
      .effect(config::Effect::Nothing)
      .same_run();
  table
      .add("find_unused_parameters", &T::find_unused_parameters,
           "A parameter that no rank used in a step is left alone by the optimiser; else its gradient counts as zero.")
      .effect(config::Effect::Nothing)
      .same_run();
  table.add("bucket_cap_mb", &T::bucket_cap_mb, "Largest size of a bucket; smaller where a tenth of all gradients is.")
      .unit("MiB")
      .above(0)
      .effect(Effect::Nothing)
      .same_run();
  table
      .add("compression", &T::compression,
           "What gradients are sent between ranks as: none (as they are), or rounded to bf16 or fp16. PowerSGD exists "
           "in "
           "c10d's Python alone, so it is not here.")
      .choices({"none", "bf16", "fp16"})
      .effect(Effect::Numerics);
  table
      .add("process_group_backend", &T::process_group_backend,
           "gloo, or nccl where LibTorch has it (not tested); auto: nccl on GPUs, gloo on CPU.")
      .choices({"auto", "gloo", "nccl"})
      .same_run();
  table.add("timeout", &T::timeout, "How long a rank waits in a collective for others that are alive, e.g. 30m.")
      .same_run();
  table
      .add("peer_timeout", &T::peer_timeout,
           "A rank that has given no sign of life for this long is lost: the others say which it is and end with code "
           "8.")
      .same_run();
  table.add("rendezvous_timeout", &T::rendezvous_timeout, "How long ranks wait for each other at the start.")
      .same_run();
  table.accept(
      "static_graph", {"true", "false", "yes", "no"},
      "what it brings is always so here: a step never looks through the graph for parameters that take no part, "
      "and buckets follow the order in which the first step's gradients came");
  table.accept("ddp_comm_hook", {"null"},
               "compression says what is sent, bf16 or fp16; PowerSGD exists in c10d's Python alone");
  return table;
}

config::Table<TrainerConfig> TrainerConfig::fields() {
  config::Table<TrainerConfig> table;
  table.about("The training loop; names and meanings are Lightning's.").target("Trainer");
  add_device_rows(table);
  add_precision_rows(table);
  add_compile_rows(table);
  add_length_rows(table);
  add_step_rows(table);
  add_cadence_rows(table);
  table.accept("logger", {"false", "true", "null"},
               "redline writes its own record; exp_manager decides about TensorBoard and CSV");
  table.accept("enable_checkpointing", {"true", "false"},
               "exp_manager.create_checkpoint_callback says whether checkpoints are saved");
  table.accept("callbacks", {"null", "[]"}, "there are no Python callbacks");
  table.accept("profiler", {"null"}, "use `redline doctor` or --trace");
  table.accept("default_root_dir", {"null"}, "exp_manager.exp_dir or --run-dir names the run directory");
  table.accept("use_distributed_sampler", {"true"}, "the plan is always split over ranks");
  table.accept("reload_dataloaders_every_n_epochs", {"0"}, "each epoch has a plan of its own anyway");
  table.accept("inference_mode", {"true"}, "validation records no gradients");
  table.accept("overfit_batches", {"0", "0.0"}, "use limit_train_batches");
  table.accept("barebones", {"false"}, "redline's own cost is measured and printed");
  return table;
}

void TrainerConfig::check_and_derive() {
  if (max_steps == 0)
    throw ConfigError("trainer.max_steps is 0: there is nothing to train; give at least 1, or -1 for no limit.");
  if (max_epochs == 0)
    throw ConfigError("trainer.max_epochs is 0: there is nothing to train; give at least 1, or -1 for no limit.");
  if (max_iters) {
    const int64_t steps = (*max_iters + accumulate_grad_batches - 1) / accumulate_grad_batches;
    max_steps = max_steps < 0 ? steps : std::min(max_steps, steps);
  }
  if (!(parse_seconds(compile_time_limit).value_or(0) > 0))
    throw ConfigError(fmt::format("trainer.compile_time_limit is '{}'; expected a time above 0 such as 10m.",
                                  printable(compile_time_limit)));
  if (max_time && !(parse_seconds(*max_time).value_or(0) > 0))
    throw ConfigError(
        fmt::format("trainer.max_time is '{}'; expected a time above 0 such as 4h, 90m or 00:04:00:00 (DD:HH:MM:SS), "
                    "or null for no limit.",
                    printable(*max_time)));
  if (memory_limit) {
    const uint64_t bytes = parse_bytes(*memory_limit).value_or(0);
    if (bytes == 0 || bytes > static_cast<uint64_t>(INT64_MAX))
      throw ConfigError(
          fmt::format("trainer.memory_limit is '{}'; expected a size above 0 such as 8GiB, or null for what the "
                      "machine has.",
                      printable(*memory_limit)));
  }
  if (fast_dev_run) {
    max_steps = 1;
    limit_train_batches = limit_val_batches = std::to_string(accumulate_grad_batches);
    val_check_interval = "1.0";
  }
  for (const auto& [text, name] :
       {std::pair{&limit_train_batches, "limit_train_batches"}, std::pair{&limit_val_batches, "limit_val_batches"},
        std::pair{&limit_test_batches, "limit_test_batches"}, std::pair{&val_check_interval, "val_check_interval"}})
    parse_count_or_share(*text, fmt::format("trainer.{}", name));
  LossScaler(amp, true);  // refuses what is no scale
  if (precision.is_auto()) precision.set(amp.loss_scale ? "16-mixed" : "32-true");
  read_precision(precision.value());
  devices.set(parse_devices(devices.value_or("auto")));
  for (const auto& [text, name] :
       {std::pair{&strategy.timeout, "timeout"}, std::pair{&strategy.peer_timeout, "peer_timeout"},
        std::pair{&strategy.rendezvous_timeout, "rendezvous_timeout"}})
    if (!(parse_seconds(*text).value_or(0) > 0))
      throw ConfigError(fmt::format("trainer.strategy.{} is '{}'; expected a time above 0 such as 10s or 30m.", name,
                                    printable(*text)));
}

Precision read_precision(const std::string& text) {
  if (const auto precision = parse_precision(text)) return *precision;
  throw ConfigError(
      fmt::format("trainer.precision is '{}'; supported: 32-true, bf16-mixed, 16-mixed (also 32, bf16, 16). Weights "
                  "always stay in fp32.",
                  printable(text)));
}

}  // namespace redline::train
