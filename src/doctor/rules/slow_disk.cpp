#include <fmt/format.h>

#include <algorithm>

#include "core/strings.h"
#include "doctor/rules/outside_limits.h"
#include "doctor/rules/predict.h"

namespace redline::doctor {

using measure::Phase;
using measure::Stage;

namespace {

// What a read costs that the page cache answers, generously; slower by this factor is waiting for a disk.
constexpr double kCallSeconds = 60e-6, kCachedBytesPerSecond = 500e6, kSlower = 3;
// What a solid-state disk of today needs to confirm, generously.
constexpr double kSyncSeconds = 0.015, kWrittenBytesPerSecond = 150e6;

std::string bytes_text(double bytes) { return format_bytes(static_cast<uint64_t>(std::max(0.0, bytes))); }

// Step time when the loader's workers have so much less to do.
double step_without(const JobView& job, const Observation& seen, double spared_seconds) {
  if (job.workers <= 0) return std::max(1e-9, seen.step_seconds - spared_seconds);
  const double wait = seen.phase(Phase::Wait).seconds_per_step, busy = seen.step_seconds - wait;
  const double loader = std::max(0.0, seen.loader_worker_seconds() - spared_seconds) / job.workers;
  return busy + std::clamp(loader - busy, 0.0, wait);
}

std::string seek_or_bandwidth(const Observation& seen) {
  if (!seen.reads.known)
    return "whether it is slow to begin or slow to deliver cannot be told from reads that are so alike";
  return seen.reads.grows > 0.5 ? "longer samples take longer, so it is bound by bandwidth"
                                : "short samples take as long as long ones, so it is bound by seeks or round trips";
}

std::string disk_rate(const MachineFacts& machine) {
  if (machine.disk_read_gb_per_second <= 0) return "`redline machine --path DATA` says what the disk can do";
  return fmt::format("the disk was measured at {:.0f} MB/s", 1e3 * machine.disk_read_gb_per_second);
}

LimitScore slow_reads(const JobView& job, const Observation& seen, const MachineFacts& machine) {
  LimitScore score{Limit::SlowDisk, 0, "reads", "reading was not watched", ""};
  const double reading = seen.stage(Stage::Read);
  if (!seen.surroundings || !seen.surroundings->reads || !seen.surroundings->read_bytes) return score;
  const double calls = *seen.surroundings->reads * seen.step_seconds;
  const double bytes = *seen.surroundings->read_bytes * seen.step_seconds;
  const double from_memory = calls * kCallSeconds + bytes / kCachedBytesPerSecond;
  score.evidence = fmt::format("a step's samples are read in {} of worker time", format_seconds(reading));
  if (reading <= kSlower * from_memory || calls <= 0) return score;
  score.gain = seen.step_seconds / step_without(job, seen, reading - from_memory) - 1;
  // No more can be gained than is waited, and that is as sure as the wait.
  const PhaseSummary& wait = seen.phase(Phase::Wait);
  if (job.workers > 0) score.sure = least_gain(wait.share, wait.share_error);
  const double from_disk = seen.surroundings->disk_read_bytes.value_or(0) * seen.step_seconds;
  score.evidence = fmt::format(
      "reading takes {} of worker time a step: {} in {:.0f} calls, {}/s while it reads, {:.0f} times as long as from "
      "memory{}; {}; {}",
      format_seconds(reading), bytes_text(bytes), calls, bytes_text(bytes / reading), reading / from_memory,
      from_disk > 0.3 * bytes
          ? fmt::format(" ({:.0f} % of it comes from the disk)", 100 * std::min(1.0, from_disk / bytes))
          : "",
      seek_or_bandwidth(seen), disk_rate(machine));
  score.cure =
      seen.reads.known && seen.reads.grows <= 0.5
          ? "Read fewer, larger pieces (`redline data prepare` packs samples into tars), let more workers wait "
            "at once (num_workers), keep samples in memory (model.train_ds.cache=memory), or move the data to a "
            "local disk."
          : "Keep samples in memory or on a local disk (model.train_ds.cache), store them in a smaller form, or "
            "move the data to a faster disk.";
  return score;
}

// Who else moves bytes on the machine's disks while reading takes so long: of the disk's time, their part of the bytes
// is theirs. Bytes are no time (theirs may be written in one piece, or lie on another disk), so no more than half of it
// is sure.
LimitScore shared_disk(const JobView& job, const Observation& seen, const LimitScore& reads) {
  constexpr double kTheirsAtLeast = 0.3, kFromDisk = 0.3;
  LimitScore score{Limit::Contended, 0, "disk", "what others do on the disks was not seen, or is little", ""};
  if (reads.gain <= 0 || !seen.surroundings->others_disk_bytes) return score;
  const double own = seen.surroundings->disk_read_bytes.value_or(0), others = *seen.surroundings->others_disk_bytes;
  if (own < kFromDisk * *seen.surroundings->read_bytes || others <= 0) return score;
  const double theirs = others / (own + others);
  if (theirs < kTheirsAtLeast) return score;
  const double reading = seen.stage(Stage::Read);
  const auto gain = [&](double part) { return seen.step_seconds / step_without(job, seen, part * reading) - 1; };
  score.gain = std::min(reads.gain, gain(theirs));
  score.sure = std::min(reads.at_least(), gain(0.5 * theirs));
  score.evidence = fmt::format(
      "reading takes {} of worker time a step while other processes move {}/s to and from the machine's disks, and "
      "this one reads {}/s from them",
      format_seconds(reading), bytes_text(others), bytes_text(own));
  score.cure =
      "Find who it is (iotop, pidstat -d), and move the job's data or the neighbour's to another disk; or keep samples "
      "in memory (model.train_ds.cache=memory).";
  return score;
}

LimitScore slow_checkpoints(const Observation& seen) {
  LimitScore score{Limit::SlowDisk, 0, "checkpoints", "no checkpoint was written in the background", ""};
  if (!seen.checkpoint_writes) return score;
  const CheckpointWrites& saved = *seen.checkpoint_writes;
  const double usual = saved.syncs * kSyncSeconds + saved.bytes / kWrittenBytesPerSecond;
  score.evidence =
      fmt::format("of the {} that writing a checkpoint of {} takes, the disk needs {} to confirm it",
                  format_seconds(saved.write_seconds), bytes_text(saved.bytes), format_seconds(saved.sync_seconds));
  const PhaseSummary& phase = seen.phase(Phase::Checkpoint);
  if (saved.sync_seconds <= kSlower * usual || phase.seconds_per_occurrence <= 0) return score;
  const double spared = std::min(1.0, (saved.sync_seconds - usual) / phase.seconds_per_occurrence);
  score.gain = removal_gain(phase.share * spared);
  score.sure = least_gain(phase.share * spared, phase.share_error * spared);
  score.evidence += fmt::format(
      " in {:.0f} calls ({} each), where a solid-state disk needs about {}; training waits {} for it each time",
      saved.syncs, format_seconds(saved.sync_seconds / std::max(1.0, saved.syncs)), format_seconds(usual),
      format_seconds(phase.seconds_per_occurrence));
  score.cure =
      "Save to a faster disk (exp_manager.exp_dir), or less often "
      "(exp_manager.checkpoint_callback_params.every_n_train_steps).";
  return score;
}

}  // namespace

std::vector<LimitScore> slow_disk(const JobView& job, const Observation& seen, const MachineFacts& machine) {
  const LimitScore reads = slow_reads(job, seen, machine);
  return {reads, slow_checkpoints(seen), shared_disk(job, seen, reads)};
}

}  // namespace redline::doctor
