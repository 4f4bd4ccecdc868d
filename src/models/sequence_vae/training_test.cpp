// Runs on sequences with a known latent structure: two factors decide which tokens appear. A decoder that cannot see
// the past must use the code; a strong one without annealing ignores it, and the monitor must say so; free bits keep it
// in use.
#include <gtest/gtest.h>
#include <torch/optim/adam.h>

#include <cstdlib>

#include "core/philox.h"
#include "models/generate.h"
#include "models/sequence_vae/task.h"

namespace redline::models::sequence_vae {
namespace {

constexpr int64_t kFactors = 2, kValues = 4, kWordsEach = 4, kVocab = 3 + kFactors * kValues * kWordsEach;

// Two independent factors of four values each: 2.77 nats. Each token is one of the four words of one factor's value,
// nine times in ten; otherwise any.
task::Batch classed_batch(int64_t first, int64_t count) {
  task::Batch batch;
  std::vector<int64_t> lengths;
  torch::Tensor table = torch::zeros({count, 22}, torch::kInt64);
  auto tokens = table.accessor<int64_t, 2>();
  for (int64_t b = 0; b < count; ++b) {
    const int64_t id = first + b;
    KeyedStream stream(11, 0, static_cast<uint64_t>(id), 0);
    const int64_t values[kFactors] = {stream.uniform_int(0, kValues - 1), stream.uniform_int(0, kValues - 1)};
    const int64_t length = stream.uniform_int(8, 20);
    tokens[b][0] = 1;
    for (int64_t t = 1; t <= length; ++t) {
      const int64_t factor = stream.uniform_int(0, kFactors - 1);
      const int64_t word = kWordsEach * (kValues * factor + values[factor]) + stream.uniform_int(0, kWordsEach - 1);
      tokens[b][t] = 3 + (stream.uniform() < 0.9 ? word : stream.uniform_int(0, kVocab - 4));
    }
    tokens[b][length + 1] = 2;
    lengths.push_back(length + 2);
    batch.sample_ids.push_back(id);
  }
  batch.tensors = {{"tokens", table}, {"lengths", torch::tensor(lengths, torch::kInt64)}};
  return batch;
}

Options classed_options() {
  Options o;
  o.vocab_size = kVocab;
  o.latent_dim = 4;
  o.d_model = 32;
  o.n_heads = 4;
  o.d_ff = 64;
  o.n_encoder_layers = o.n_decoder_layers = 2;
  o.dropout = 0.0;
  o.max_sequence_length = 22;
  o.lstm = {16, 32, 32, 0.0, 0.0};
  o.monitor.window_size = 16;
  return o;
}
// The decoder hardly sees the past, and the KL term comes slowly: over more than half of the run.
Options healthy_options(int64_t steps) {
  Options o = classed_options();
  o.architecture = "lstm";
  o.lstm.dropout_in = 0.99;
  o.kl_schedule.kind = "linear";
  o.kl_schedule.warm_up_steps = steps * 4 / 7;
  return o;
}
Options strong_options() { return classed_options(); }
Options free_bits_options() {
  Options o = classed_options();
  o.free_bits = {"clamp", 8.0};
  return o;
}

struct Outcome {
  std::map<std::string, double> last;
  CollapseVerdict verdict;
  int64_t called_at = 0;  // first step at which a collapse was called; 0: never
};

Outcome train_classed(Options o, int64_t steps, int64_t look_every) {
  o.monitor.update_frequency = look_every;
  SequenceVaeTask task(o, 3);
  const auto monitor = task.monitor();
  auto& posterior = dynamic_cast<PosteriorMetricsMonitor&>(*monitor);
  torch::optim::Adam optimiser(task.module().parameters(), torch::optim::AdamOptions(1e-2));
  Outcome out;
  for (int64_t step = 1; step <= steps; ++step) {
    const task::Batch batch = classed_batch(step * 16 % 4096, 16);
    task::Context ctx(5, step - 1, true, batch.sample_ids);
    optimiser.zero_grad();
    task.loss(batch, ctx).value.backward();
    optimiser.step();
    task.committed(step);
    if (step % look_every != 0) continue;
    out.last = monitor->update(step);
    out.verdict = posterior.verdict();
    if (out.verdict.level != Collapse::None && out.called_at == 0) out.called_at = step;
    if (std::getenv("REDLINE_SHOW") != nullptr)
      std::printf("%5ld kl %.3f mi %.3f au %.0f rec %.3f beta %.2f level %d\n", static_cast<long>(step),
                  out.last["posterior/kl"], out.last["posterior/mutual_information"],
                  out.last["posterior/active_units"], out.last["posterior/reconstruction"],
                  out.last["posterior/kl_weight"], static_cast<int>(out.verdict.level));
  }
  return out;
}

bool slow_runs() { return std::getenv("REDLINE_SLOW") != nullptr; }

TEST(SequenceVaeTraining, AHealthyRunKeepsActiveUnitsSlow) {
  const int64_t steps = slow_runs() ? 2000 : 280;
  const Outcome run = train_classed(healthy_options(steps), steps, slow_runs() ? 100 : 20);
  const double information = run.last.at("posterior/mutual_information_paired");
  EXPECT_EQ(run.called_at, 0);
  EXPECT_GE(run.last.at("posterior/active_units"), 2.0);
  EXPECT_GT(information, slow_runs() ? 1.0 : 0.2);  // a collapsed run has 0.05
  EXPECT_LE(information, std::log(run.last.at("posterior/mutual_information_n")) + 1e-9);
}

TEST(SequenceVaeTraining, AStrongDecoderWithoutAnnealingCollapsesAndTheMonitorSaysSoSlow) {
  const Outcome run = train_classed(strong_options(), slow_runs() ? 2000 : 300, slow_runs() ? 100 : 20);
  EXPECT_EQ(run.verdict.level, Collapse::Full);
  EXPECT_GT(run.called_at, 0);
  EXPECT_LE(run.called_at, 500);
  EXPECT_FALSE(run.verdict.reasons.empty());
  EXPECT_LE(run.verdict.since_step, run.called_at);
}

TEST(SequenceVaeTraining, FreeBitsKeepTheCodeInUseSlow) {
  const Outcome run = train_classed(free_bits_options(), slow_runs() ? 2000 : 200, slow_runs() ? 100 : 20);
  EXPECT_EQ(run.called_at, 0);
  EXPECT_GE(run.last.at("posterior/active_units"), 1.0);
  EXPECT_GT(run.last.at("posterior/mutual_information_paired"), 0.3);
}

}  // namespace
}  // namespace redline::models::sequence_vae
