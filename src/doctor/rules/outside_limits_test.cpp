#include "doctor/rules/outside_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace redline::doctor {
namespace {

using measure::Phase;
using measure::Stage;

// A step of 100 ms that computes for all but `wait` of it, on a machine where nothing else happens.
Observation quiet_run(double wait = 0) {
  Observation seen;
  seen.steps = 100, seen.step_seconds = 0.1, seen.samples_per_step = 8;
  const auto put = [&](Phase phase, double share) {
    seen.phases[static_cast<size_t>(phase)] = {0.1 * share, share, 0.1 * share, 100};
  };
  put(Phase::Wait, wait), put(Phase::Forward, 0.4 * (1 - wait)), put(Phase::Backward, 0.58 * (1 - wait));
  put(Phase::Optimiser, 0.02 * (1 - wait));
  Surroundings around;
  around.seconds = 10, around.cores = 2, around.own = 1.8 * (1 - wait);
  around.others = 0.0, around.stolen = 0.0, around.waited = 0.02, around.throttled = 0.0, around.memory_pressure = 0.0;
  around.stopped = 0.0, around.reads = 400.0, around.read_bytes = 4e6, around.disk_read_bytes = 0.0;
  around.gigahertz = 3.0, around.best_gigahertz = 3.05;
  seen.surroundings = around;
  return seen;
}

MachineFacts machine_of_two() {
  MachineFacts machine;
  machine.logical_cpus = machine.allowed_cpus = 2;
  machine.memory_limit_bytes = uint64_t{24} << 30;
  return machine;
}

JobView job_with(int workers) {
  JobView job;
  job.workers = workers, job.threads = 2;
  return job;
}

TEST(OutsideLimits, AQuietMachineIsBlamedForNothing) {
  for (const LimitScore& score : outside_limits(job_with(1), quiet_run(), machine_of_two()))
    EXPECT_LT(score.gain, 0.01) << limit_name(score.limit) << " " << score.evidence;
}

TEST(OutsideLimits, EachCauseIsNamedWithWhatToDo) {
  struct Case {
    Limit limit;
    const char* detail;
    const char* evidence;
    double low, high;  // of the gain
    std::function<void(Observation&, MachineFacts&)> make;
  };
  const std::vector<Case> cases = {
      {Limit::Contended, "CPU", "most of it python3 (7)", 0.75, 0.85,
       [](Observation& s, MachineFacts&) {
         s.surroundings->own = 1.1, s.surroundings->others = 0.9, s.surroundings->waited = 1.4;
         s.surroundings->neighbour = "python3 (7)";
       }},
      {Limit::Contended, "CPU", "the hypervisor takes 0.50", 0.3, 0.4,
       [](Observation& s, MachineFacts&) { s.surroundings->own = 1.4, s.surroundings->stolen = 0.5; }},
      {Limit::Throttled, "quota", "a quota of 1.25 cores holds", 0.55, 0.65,
       [](Observation& s, MachineFacts& m) {
         m.cgroup_cpu_quota = 1.25, m.allowed_cpus = 1;
         s.surroundings->own = 1.24, s.surroundings->throttled = 0.9;
       }},
      {Limit::Throttled, "quota", "leaves it 1 of the machine's 2", 0.3, 0.9,
       [](Observation& s, MachineFacts& m) {
         m.cgroup_cpu_quota = 1, m.allowed_cpus = 1;
         s.surroundings->own = 0.97;
       }},
      {Limit::Stopped, "stopped", "nothing of the process could run in 33 %", 0.45, 0.55,
       [](Observation& s, MachineFacts&) { s.surroundings->own = 1.2, s.surroundings->stopped = 0.33; }},
      {Limit::Pinned, "affinity", "1 of the machine's 2 cores", 0.3, 0.9,
       [](Observation& s, MachineFacts& m) { m.allowed_cpus = 1, s.surroundings->own = 0.99; }},
      {Limit::Swapping, "memory", "500 pages a second", 1.4, 1.6,
       [](Observation& s, MachineFacts&) {
         s.surroundings->memory_pressure = 0.6, s.surroundings->major_faults = 500;
       }},
      {Limit::ClockedDown, "frequency", "1.80 GHz most of the time, and reached 3.00", 0.6, 0.7,
       [](Observation& s, MachineFacts&) { s.surroundings->gigahertz = 1.8, s.surroundings->best_gigahertz = 3.0; }},
      {Limit::Unknown, "", "no thread of this process ran", 0.8, 1.2,
       [](Observation& s, MachineFacts&) { s.surroundings->own = 0.5; }},
  };
  for (const Case& one : cases) {
    Observation seen = quiet_run();
    MachineFacts machine = machine_of_two();
    one.make(seen, machine);
    const Diagnosis found = diagnose(job_with(1), seen, {}, machine);
    EXPECT_EQ(found.limit, one.limit) << one.evidence << ": " << found.sentence;
    EXPECT_EQ(found.detail, one.detail);
    EXPECT_THAT(found.sentence, testing::HasSubstr(one.evidence));
    EXPECT_GE(found.scores[0].gain, one.low) << found.sentence;
    EXPECT_LE(found.scores[0].gain, one.high) << found.sentence;
    EXPECT_FALSE(found.cure.empty()) << found.sentence;
  }
}

TEST(OutsideLimits, WaitingForOwnThreadsIsNobodyElsesFault) {
  Observation seen = quiet_run();
  // Eight threads on two cores: a fifth of the cores' time is idle at the ends of regions.
  seen.surroundings->waited = 5.5, seen.surroundings->own = 1.6, seen.surroundings->switches = 4000;
  JobView many = job_with(1);
  many.threads = 8;
  const Diagnosis found = diagnose(many, seen, {}, machine_of_two());
  EXPECT_EQ(found.limit, Limit::Oversubscribed);
  EXPECT_NEAR(found.scores[0].gain, 0.28, 0.02);
  seen.surroundings->own = 2.0, seen.surroundings->switches = 100;  // they take turns without loss
  EXPECT_EQ(diagnose(many, seen, {}, machine_of_two()).limit, Limit::Compute);
}

// Twelve milliseconds for each of eight reads a step: far longer than from memory.
Observation slow_reading(int workers) {
  Observation seen = quiet_run(0.5);
  seen.surroundings->reads = 80.0, seen.surroundings->read_bytes = 4e6;
  seen.stage_seconds_per_step[static_cast<size_t>(Stage::Read)] = workers > 0 ? 0.1 * workers : 0.05;
  seen.stage_seconds_per_step[static_cast<size_t>(Stage::Decode)] = 0.002;
  return seen;
}

TEST(SlowDisk, ReadsThatTakeTooLongAreTheDisksAndNotTheLoaders) {
  for (const int workers : {0, 2}) {
    const Diagnosis found = diagnose(job_with(workers), slow_reading(workers), {}, machine_of_two());
    EXPECT_EQ(found.limit, Limit::SlowDisk) << found.sentence;
    EXPECT_EQ(found.detail, "reads");
    EXPECT_NEAR(found.scores[0].gain, 1.0, 0.1) << workers;  // half of the step was waiting for it
    EXPECT_THAT(found.sentence, testing::HasSubstr("cannot be told"));
    EXPECT_FALSE(found.cure.empty());
  }
  Observation by_seeks = slow_reading(2);
  by_seeks.reads = {true, 0.0, 0.1};
  EXPECT_THAT(diagnose(job_with(2), by_seeks, {}, machine_of_two()).sentence, testing::HasSubstr("bound by seeks"));
  by_seeks.reads = {true, 0.9, 0.9};
  EXPECT_THAT(diagnose(job_with(2), by_seeks, {}, machine_of_two()).sentence, testing::HasSubstr("bound by bandwidth"));
}

TEST(SlowDisk, ADiskThatOthersKeepBusyIsTheirs) {
  Observation seen = slow_reading(2);
  seen.surroundings->disk_read_bytes = 4e6, seen.surroundings->others_disk_bytes = 36e6;
  const Diagnosis found = diagnose(job_with(2), seen, {}, machine_of_two());
  EXPECT_EQ(found.limit, Limit::Contended) << found.sentence;
  EXPECT_EQ(found.detail, "disk");
  EXPECT_THAT(found.sentence, testing::HasSubstr("other processes move"));
  EXPECT_GT(found.scores[0].gain, 0.5);
  EXPECT_LT(found.scores[0].at_least(), found.scores[0].gain);
  EXPECT_FALSE(found.cure.empty());
  const auto limit_of = [&](double disk_read, double others) {
    seen.surroundings->disk_read_bytes = disk_read, seen.surroundings->others_disk_bytes = others;
    const Diagnosis said = diagnose(job_with(2), seen, {}, machine_of_two());
    return std::pair(said.limit, said.detail);
  };
  EXPECT_EQ(limit_of(4e6, 0.5e6), std::pair(Limit::SlowDisk, std::string("reads")));  // theirs is little
  EXPECT_EQ(limit_of(0, 36e6), std::pair(Limit::SlowDisk, std::string("reads")));     // its own do not come from there
}

TEST(SlowDisk, AManySamplesReadFromMemoryAreNot) {
  Observation seen = slow_reading(2);
  seen.surroundings->reads = 40'000.0;  // 50 us each
  EXPECT_EQ(diagnose(job_with(2), seen, {}, machine_of_two()).limit, Limit::Data);
  seen = slow_reading(2);
  seen.surroundings->reads.reset();  // not to be seen
  EXPECT_EQ(diagnose(job_with(2), seen, {}, machine_of_two()).limit, Limit::Data);
}

TEST(SlowDisk, ADiskThatIsSlowToConfirmIsNotALargeCheckpoint) {
  Observation seen = quiet_run();
  auto& saving = seen.phases[static_cast<size_t>(Phase::Checkpoint)];
  saving = {0.02, 0.2, 0.4, 5};
  seen.checkpoint_writes = CheckpointWrites{3e6, 0.5, 0.45, 4};
  const Diagnosis slow = diagnose(job_with(1), seen, {}, machine_of_two());
  EXPECT_EQ(slow.limit, Limit::SlowDisk) << slow.sentence;
  EXPECT_EQ(slow.detail, "checkpoints");
  seen.checkpoint_writes = CheckpointWrites{60e6, 0.5, 0.3, 4};
  EXPECT_EQ(diagnose(job_with(1), seen, {}, machine_of_two()).limit, Limit::Cadence);
}

TEST(SmallBatch, ThreadsWithoutWorkAreSeenWhereAllStepsAreAlike) {
  Observation seen = quiet_run();
  seen.samples_per_step = 1, seen.micro_batches_per_step = 1;
  seen.surroundings->own = 1.1;
  const Diagnosis found = diagnose(job_with(1), seen, {}, machine_of_two());
  EXPECT_EQ(found.limit, Limit::SmallBatch) << found.sentence;
  EXPECT_THAT(found.sentence, testing::HasSubstr("its threads have nothing to do"));
  seen.samples_per_step = 32;  // that many samples are no small batch
  EXPECT_NE(diagnose(job_with(1), seen, {}, machine_of_two()).limit, Limit::SmallBatch);
  seen.samples_per_step = 1, seen.surroundings->own = 1.9;
  EXPECT_EQ(diagnose(job_with(1), seen, {}, machine_of_two()).limit, Limit::Compute);
}

// Workers keep the process busy while its one training thread is held up.
TEST(OutsideLimits, AThreadOnNoCoreIsSeenBesideBusyWorkers) {
  Observation seen = quiet_run();
  JobView one = job_with(1);
  one.threads = 1;
  EXPECT_EQ(diagnose(one, seen, {}, machine_of_two()).limit, Limit::Compute);
  seen.surroundings->off_core[static_cast<size_t>(Phase::Backward)] = 0.3;
  const Diagnosis found = diagnose(one, seen, {}, machine_of_two());
  EXPECT_EQ(found.limit, Limit::Unknown) << found.sentence;
  EXPECT_THAT(found.sentence, testing::HasSubstr("in 28 % of the time"));  // of 30 %, a core was waited for in 2
  EXPECT_EQ(diagnose(job_with(1), seen, {}, machine_of_two()).limit,
            Limit::Compute);         // of two, one waits for the other
  seen.surroundings->stopped = 0.3;  // that says why
  EXPECT_EQ(diagnose(one, seen, {}, machine_of_two()).limit, Limit::Stopped);
}

TEST(OutsideLimits, OthersOnTheGpuAreNamedWithoutAGain) {
  Observation seen = quiet_run();
  seen.surroundings->gpu_others = 1.0;
  const Diagnosis found = diagnose(job_with(1), seen, {}, machine_of_two());
  EXPECT_EQ(found.limit, Limit::Compute);
  EXPECT_THAT(found.sentence, testing::HasSubstr("Others compute on its GPUs"));
}

TEST(OutsideLimits, ALogThatWaitsSaysSo) {
  Observation seen = quiet_run();
  seen.phases[static_cast<size_t>(Phase::Log)] = {0.02, 0.2, 0.02, 100};
  seen.surroundings->off_core[static_cast<size_t>(Phase::Log)] = 0.15;
  EXPECT_THAT(diagnose(job_with(1), seen, {}, machine_of_two()).sentence,
              testing::HasSubstr("in 75 % of which its thread is on no core"));
}

TEST(OutsideLimits, WhatCouldNotBeSeenIsSaid) {
  Observation seen = quiet_run();
  seen.surroundings->unseen = "throttling by a quota (cpu.stat)";
  EXPECT_EQ(diagnose(job_with(1), seen, {}, machine_of_two()).unseen, "throttling by a quota (cpu.stat)");
}

}  // namespace
}  // namespace redline::doctor
