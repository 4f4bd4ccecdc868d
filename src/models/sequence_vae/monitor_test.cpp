#include "models/sequence_vae/monitor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "core/error.h"

namespace redline::models::sequence_vae {
namespace {

MonitorOptions look_options(int64_t every) {
  MonitorOptions o;
  o.update_frequency = every;
  o.plot_frequency = 10 * every;
  o.window_size = 4;
  return o;
}

// Batches of 8 posteriors in 3 dimensions; `spread` is how far their means lie apart in the first.
void push_batch(PosteriorWindow& window, double spread, int64_t batch) {
  torch::Tensor mean = torch::zeros({8, 3});
  for (int64_t i = 0; i < 8; ++i) mean[i][0] = spread * std::sin(static_cast<double>(batch * 8 + i));
  const torch::Tensor log_variance = torch::full({8, 3}, spread > 0.0 ? -2.0 : 0.0);
  window.push(mean, log_variance, mean, torch::full({8}, 12.0));
}

TEST(PosteriorWindow, KeepsOnlyTheLatestBatches) {
  PosteriorWindow window(2);
  for (int64_t i = 0; i < 5; ++i)
    window.push(torch::full({3, 2}, static_cast<double>(i)), torch::zeros({3, 2}), torch::zeros({3, 2}),
                torch::full({3}, 1.0 * i));
  const auto snapshot = window.snapshot();
  EXPECT_EQ(snapshot.n, 6);
  EXPECT_EQ(snapshot.mean.front(), 3.0f);
  EXPECT_EQ(snapshot.mean.back(), 4.0f);
  EXPECT_DOUBLE_EQ(snapshot.reconstruction, 3.5);
  EXPECT_EQ(snapshot.last(4).n, 4);
  EXPECT_EQ(snapshot.last(4).mean.size(), 8u);
  EXPECT_EQ(snapshot.last(4).mean[0], 3.0f);
  EXPECT_EQ(snapshot.last(100).n, 6);
}

TEST(PosteriorMetricsMonitor, ReportsWhatTheWindowHolds) {
  auto window = std::make_shared<PosteriorWindow>(4);
  PosteriorMetricsMonitor monitor(look_options(10), {}, window, 3);
  EXPECT_TRUE(monitor.update(10).empty());
  for (int64_t i = 0; i < 4; ++i) push_batch(*window, 2.0, i);
  const auto metrics = monitor.update(20);
  EXPECT_EQ(metrics.at("posterior/active_units"), 1.0);
  EXPECT_EQ(metrics.at("posterior/mutual_information_n"), 32.0);
  EXPECT_NEAR(metrics.at("posterior/reconstruction"), 12.0, 1e-6);
  const double other = 0.5 * (std::exp(-2.0) + 2.0 - 1.0);
  EXPECT_NEAR(metrics.at("posterior/kl_dim_01"), other, 1e-6);
  EXPECT_NEAR(metrics.at("posterior/kl"), metrics.at("posterior/kl_dim_00") + 2.0 * other, 1e-6);
  EXPECT_GT(metrics.at("posterior/mutual_information_paired"), 0.5);
  EXPECT_EQ(metrics.at("posterior/collapse"), 0.0);
  EXPECT_EQ(metrics.size(), PosteriorMetricsMonitor::metrics(3).size());
  for (const task::MetricInfo& info : PosteriorMetricsMonitor::metrics(3))
    EXPECT_EQ(metrics.count(info.name), 1u) << info.name;
}

TEST(PosteriorMetricsMonitor, CallsACollapseAndRemembersSinceWhenAcrossARestart) {
  auto window = std::make_shared<PosteriorWindow>(4);
  PosteriorMetricsMonitor monitor(look_options(10), {}, window, 3);
  for (int64_t i = 0; i < 4; ++i) push_batch(*window, 0.0, i);
  monitor.update(10);
  monitor.update(20);
  EXPECT_EQ(monitor.verdict().level, Collapse::None);
  PosteriorMetricsMonitor resumed(look_options(10), {}, window, 3);
  resumed.load_state_json(monitor.state_json());
  const auto metrics = resumed.update(30);
  EXPECT_EQ(metrics.at("posterior/collapse"), 2.0);
  EXPECT_EQ(resumed.verdict().since_step, 10);
  EXPECT_EQ(resumed.history().points().size(), 3u);
  EXPECT_EQ(resumed.history().points()[0].step, 10);
  for (int64_t i = 0; i < 4; ++i) push_batch(*window, 2.0, i);
  EXPECT_EQ(resumed.update(40).at("posterior/collapse"), 0.0);
}

// What update() says after a restart is what it would have said, bit by bit; a step that was given up leaves no trace.
TEST(PosteriorMetricsMonitor, TheWindowIsPartOfItsState) {
  auto window = std::make_shared<PosteriorWindow>(4);
  PosteriorMetricsMonitor monitor(look_options(10), {}, window, 3);
  for (int64_t i = 0; i < 6; ++i) {
    const torch::Tensor mean = torch::randn({2 + i, 3}), log_variance = torch::randn({2 + i, 3});
    window->push(mean, log_variance, mean + 0.1, torch::randn({2 + i}));
  }
  monitor.update(10);
  const std::string json = monitor.state_json();
  auto other = std::make_shared<PosteriorWindow>(4);
  PosteriorMetricsMonitor resumed(look_options(10), {}, other, 3);
  const torch::Tensor given_up = torch::full({2, 3}, NAN);
  window->stage(given_up, given_up, given_up, torch::full({2}, NAN));
  const auto tensors = monitor.state_tensors();
  window->drop_staged();
  resumed.load_state_json(json);
  resumed.load_state_tensors(tensors);
  EXPECT_EQ(other->size(), 4);
  EXPECT_EQ(resumed.state_json(), json);
  const torch::Tensor mean = torch::randn({5, 3});
  for (PosteriorWindow* one : {window.get(), other.get()}) {
    one->stage(mean, mean, mean, torch::ones({5}));
    one->commit();
  }
  EXPECT_EQ(monitor.update(20), resumed.update(20));
  EXPECT_EQ(monitor.state_json(), resumed.state_json());
  for (const auto& [name, tensor] : monitor.state_tensors())
    EXPECT_TRUE(torch::equal(tensor, resumed.state_tensors().at(name))) << name;

  auto torn = tensors;
  torn["window.rows"] = torn["window.rows"] + 1;
  EXPECT_THROW(resumed.load_state_tensors(torn), CheckpointError);
  resumed.load_state_tensors({});  // of an older version
  EXPECT_TRUE(other->empty());
  EXPECT_TRUE(resumed.update(30).empty());
}

TEST(PosteriorMetricsMonitor, WritesItsPicturesWhereAsked) {
  auto window = std::make_shared<PosteriorWindow>(4);
  PosteriorMetricsMonitor monitor(look_options(10), {}, window, 3);
  push_batch(*window, 2.0, 0);
  monitor.update(10);
  const auto folder = std::filesystem::temp_directory_path() / "redline_monitor_test";
  std::filesystem::remove_all(folder);
  const auto files = monitor.plot(10, (folder / "plots").string());
  ASSERT_EQ(files.size(), 4u);
  for (const std::string& file : files) EXPECT_GT(std::filesystem::file_size(file), 500u) << file;
  std::filesystem::remove_all(folder);
}

TEST(MonitorOptions, FrequenciesFollowTheGuide) {
  MonitorOptions usual, fast, mixed;
  usual.resolve();
  fast.fast_detection = mixed.fast_detection = true;
  fast.resolve();
  mixed.update_frequency = 7;
  mixed.resolve();
  EXPECT_EQ(usual.update_frequency.value(), 100);
  EXPECT_EQ(usual.plot_frequency.value(), 1000);
  EXPECT_EQ(usual.window_size, 50);
  EXPECT_EQ(fast.update_frequency.value(), 200);
  EXPECT_EQ(fast.plot_frequency.value(), 2000);
  EXPECT_EQ(mixed.update_frequency.value(), 7);
  EXPECT_EQ(mixed.plot_frequency.value(), 2000);
}

TEST(History, StaysBoundedAndSpansTheRun) {
  History history(16);
  for (int64_t i = 0; i < 1000; ++i) history.add({i, 0, 0, 0, 0, 0, 0});
  EXPECT_LT(history.points().size(), 16u);
  EXPECT_GE(history.points().size(), 8u);
  EXPECT_EQ(history.points().front().step, 0);
  EXPECT_GE(history.points().back().step, 1000 - 2 * history.stride());
  for (size_t i = 1; i < history.points().size(); ++i)
    EXPECT_EQ(history.points()[i].step - history.points()[i - 1].step, history.stride());
}

}  // namespace
}  // namespace redline::models::sequence_vae
