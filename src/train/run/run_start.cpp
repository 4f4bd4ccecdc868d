#include "train/run/run_start.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/log.h"
#include "core/own_folder.h"
#include "core/strings.h"
#include "device/process_memory.h"
#include "train/convert.h"
#include "train/weights.h"

namespace redline::train {

void take_resolved_values(Job& job, const LoopState& state) {
  if (job.threads_were_auto() && state.intra_op_threads > 0) {
    job.set_intra_op_threads(state.intra_op_threads);
    if (state.intra_op_threads > job.machine().cpus_of_rank())
      log_warning(fmt::format(
          "The run was started with {} intra-op threads and keeps them, but this process may use {} cores: threads "
          "will wait for each other. trainer.intra_op_threads={} avoids that; the run then continues within rounding.",
          state.intra_op_threads, job.machine().cpus_of_rank(), job.machine().cpus_of_rank()));
  }
  if (job.precision_was_chosen()) job.set_precision(state.precision_name);
}

namespace {

// A file of another project is converted by a child (train/convert.h) into a folder that goes with this call.
std::map<std::string, torch::Tensor> initial_weights(const Job& job) {
  const std::filesystem::path path = *job.root().load_from;
  if (!is_torch_file(path)) return read_weights(path);
  if (std::error_code ignored; !std::filesystem::exists(path, ignored))
    throw CheckpointError(fmt::format("There are no weights at {}.", printable(path.string())));
  const OwnFolder scratch = OwnFolder::temporary("weights", std::filesystem::temp_directory_path());
  ConvertRequest request;
  request.source = path;
  request.target = scratch.path() / "weights.safetensors";
  request.known_names = job.entry().from_reference_names;
  request.known_order = job.entry().from_reference_order;
  const ConvertReport report = convert_weights(request);
  log_info(fmt::format(
      "{}: {} tensors converted ({} renamed, {} without a place). `redline convert {} OUT.safetensors` "
      "keeps the result.",
      printable(path.string()), report.tensors, report.renamed, report.left_out.size(), printable(path.string())));
  return read_weights(request.target);
}

}  // namespace

void load_initial_weights(const Job& job, task::Task& task) {
  if (!job.root().load_from) return;
  const WeightsReport report = load_weights(task.module(), initial_weights(job));
  if (report.loaded.empty() || (job.root().load_strict && !report.complete()))
    throw CheckpointError(
        fmt::format("The weights in {} do not fit this model: {}.", *job.root().load_from, report.text(64)));
  log_info(fmt::format("Weights from {}: {}.", *job.root().load_from, report.text(64)));
}

int64_t available_bytes(const Job& job) { return device::system_available_bytes() / job.machine().ranks.per_host; }

}  // namespace redline::train
