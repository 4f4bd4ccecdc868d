// Keyed dropout against torch::dropout, forward and backward, on shapes of the speech model. Bar: not slower. The last
// line is JSON for workloads/dropout.py: time of keyed over torch's, per shape.
#include <torch/torch.h>

#include <set>

#include "interleave.h"
#include "task/context.h"

namespace redline::bench {
namespace {

double run_shape(const char* name, std::vector<int64_t> shape, torch::ScalarType dtype, std::vector<int64_t> padded,
                 double p) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < shape[0]; ++i) ids.push_back(1000 + i);
  torch::Tensor x = torch::randn(shape).to(dtype).requires_grad_(true);
  const torch::Tensor gradient = torch::randn(shape).to(dtype);
  int64_t step = 0;
  const auto torch_way = [&] {
    x.mutable_grad().reset();
    at::dropout(x, p, true).backward(gradient);
  };
  const auto keyed_way = [&] {
    x.mutable_grad().reset();
    task::Context context(1, ++step, true, ids);
    context.dropout(x, p, "bench", padded).backward(gradient);
  };
  const int repeats = static_cast<int>(std::clamp<int64_t>(3'000'000 / x.numel(), 1, 200));
  const Comparison c = compare(torch_way, keyed_way, 5, repeats);
  print_comparison(name, "torch", "keyed", c);
  return 1 / c.estimate.ratio;
}

}  // namespace
}  // namespace redline::bench

int main() {
  using redline::bench::run_shape;
  std::string json;
  const auto add = [&](const std::string& name, double ratio) {
    json += fmt::format("{}\"{}\": {}", json.empty() ? "" : ", ", name, ratio);
  };
  std::set<int> counts = {at::get_num_threads(), 1};
  for (int threads : counts) {
    at::set_num_threads(threads);
    const std::string end = fmt::format(", {} threads", threads);
    fmt::print("{} threads\n", threads);
    add("activations fp32" + end, run_shape("activations [8, 100, 704] fp32", {8, 100, 704}, torch::kFloat32, {}, 0.1));
    add("narrow activations fp32" + end,
        run_shape("activations [8, 100, 176] fp32", {8, 100, 176}, torch::kFloat32, {}, 0.1));
    add("attention fp32" + end,
        run_shape("attention [8, 4, 100, 100] fp32, padded", {8, 4, 100, 100}, torch::kFloat32, {2, 3}, 0.1));
    add("small attention fp32" + end,
        run_shape("attention [8, 4, 38, 38] fp32, padded", {8, 4, 38, 38}, torch::kFloat32, {2, 3}, 0.1));
    add("large fp32" + end, run_shape("large [8, 750, 2048] fp32", {8, 750, 2048}, torch::kFloat32, {}, 0.1));
    add("activations bf16" + end,
        run_shape("activations [8, 100, 704] bf16", {8, 100, 704}, torch::kBFloat16, {}, 0.1));
    add("tiny fp32" + end, run_shape("small [8, 64] fp32", {8, 64}, torch::kFloat32, {}, 0.1));
  }
  fmt::print("{{{}}}\n", json);
  return 0;
}
