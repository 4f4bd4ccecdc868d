// What moves along with the batch, on real jobs: every schedule is a function of the samples seen.
#include <gtest/gtest.h>

#include <cmath>

#include "train/job.h"
#include "train/testing/example_task.h"
#include "tune/search/companions.h"
#include "tune/trials/job_source.h"

namespace redline::tune {
namespace {

struct SchedulePair {
  train::Schedule reference, larger;
};

class Companions : public ::testing::Test {
 protected:
  Companions() : jobs_{registry_, {}, {}} {
    example::register_curve(registry_);
    jobs_.machine.allowed_cpus = jobs_.machine.logical_cpus = 2;
  }

  std::unique_ptr<train::Job> read(const Setting& setting) {
    return train::Job::read(registry_, jobs_.with(setting), jobs_.machine);
  }

  // The schedules of a job and of the same with `times` the batch.
  SchedulePair schedules(const std::vector<std::string>& words, int64_t times) {
    jobs_.source.tuned = {"task=curve", "model.samples=640", "model.train_ds.batch_size=4", "trainer.max_steps=4000",
                          "trainer.intra_op_threads=1"};
    jobs_.source.tuned.insert(jobs_.source.tuned.end(), words.begin(), words.end());
    jobs_.complete = {};
    const auto job = read({});
    const auto task = job->build_task();
    const JobView view = view_job(*job, *task);
    jobs_.complete = [view](const Setting& setting) { return with_companions(view, setting); };
    const auto larger = read({{kBatchPath, std::to_string(4 * times)}});
    const auto schedule = [&](const train::Job& of) {
      return make_loop_settings(of, *task, *of.build_loader(*task, train::Job::Part::Train, {})).schedule;
    };
    return {schedule(*job), schedule(*larger)};
  }

  task::Registry registry_;
  JobSource jobs_;
};

TEST_F(Companions, EveryScheduleIsAFunctionOfTheSamplesSeen) {
  const std::map<std::string, std::vector<std::string>> schedules_of = {
      {"none", {}},
      {"constant", {"model.optim.sched.name=constant", "model.optim.sched.warmup_steps=160"}},
      {"Noam",
       {"model.optim.sched.name=NoamAnnealing", "model.optim.sched.d_model=64", "model.optim.sched.warmup_steps=160"}},
      {"CosineAnnealing",
       {"model.optim.sched.name=CosineAnnealing", "model.optim.sched.warmup_steps=160", "model.optim.sched.min_lr=1e-4",
        "model.optim.sched.constant_steps=80"}},
      {"cosine",
       {"model.optim.sched.name=cosine", "model.optim.sched.warmup_steps=160", "model.optim.sched.min_lr=1e-5"}},
      {"poly", {"model.optim.sched.name=poly", "model.optim.sched.warmup_steps=160", "model.optim.sched.min_lr=1e-5"}},
      {"poly in pieces",
       {"model.optim.sched.name=poly", "model.optim.sched.warmup_steps=160", "trainer.accumulate_grad_batches=4"}},
  };
  for (const auto& [name, words] : schedules_of)
    for (const std::string optimizer : {"adamw", "adam", "sgd"})
      for (const int64_t times : {2, 4, 8}) {
        auto all = words;
        all.push_back("model.optim.name=" + optimizer);
        const SchedulePair pair = schedules(all, times);
        const double wanted = optimizer == "sgd" ? static_cast<double>(times) : std::sqrt(static_cast<double>(times));
        for (int i = 0; i < 20; ++i) {
          // Past the warm-up, before the last tenth: there a rate that goes to 0 changes within one step of the larger
          // batch.
          const int64_t step = (160 * 2 + i * 160) / times * times;
          const double ratio = pair.larger.at(step / times) / pair.reference.at(step);
          EXPECT_NEAR(ratio / wanted, 1.0, 0.01) << name << " " << optimizer << " x" << times << " step " << step;
        }
      }
}

TEST_F(Companions, AScaledJobThatMovesAgainIsScaledOnce) {
  const std::vector<std::string> words = {"model.optim.sched.name=NoamAnnealing", "model.optim.sched.d_model=64",
                                          "model.optim.sched.warmup_steps=160", "model.optim.scale_lr=sqrt",
                                          "model.optim.base_batch_size=4"};
  const SchedulePair pair = schedules(words, 8);
  EXPECT_NEAR(pair.larger.at(200) / pair.reference.at(1600), std::sqrt(8.0), 0.03);
}

}  // namespace
}  // namespace redline::tune
