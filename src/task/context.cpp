// Keyed draws for models. All work is in keyed_random and keyed_dropout; here a shape and a name become an address.
#include "task/context.h"

#include <ATen/Parallel.h>

#include "core/check.h"
#include "core/philox.h"
#include "task/detail/keyed_dropout.h"

namespace redline::task {

namespace {

// [B, ...] stays, [B * k, ...] becomes [B, k, ...] with the padded dimensions counted accordingly.
std::vector<int64_t> rows_of_samples(at::IntArrayRef sizes, int64_t samples, std::vector<int64_t>& padded_dims) {
  REDLINE_CHECK(!sizes.empty() && samples > 0 && sizes[0] % samples == 0,
                "a keyed draw has one row, or k consecutive rows, per sample of the batch");
  std::vector<int64_t> shape = sizes.vec();
  if (sizes[0] == samples) return shape;
  shape[0] = sizes[0] / samples;
  shape.insert(shape.begin(), samples);
  for (int64_t& dim : padded_dims)
    if (dim >= 0) ++dim;
  return shape;
}

using RunFunction = void (*)(PhiloxKey, uint64_t, uint64_t, int64_t, float*, RandomPath);

torch::Tensor draw_tensor(const std::vector<int64_t>& shape, std::vector<int64_t> padded_dims,
                          const std::vector<int64_t>& ids, PhiloxKey key, RunFunction draw) {
  torch::Tensor out = torch::empty(shape, torch::kFloat32);
  const KeyLayout layout(rows_of_samples(shape, static_cast<int64_t>(ids.size()), padded_dims), padded_dims);
  const int64_t length = layout.run_length(), runs = layout.runs_per_row();
  if (length == 0 || runs == 0) return out;
  float* values = out.mutable_data_ptr<float>();
  constexpr int64_t kStretch = 4096;
  const int64_t pieces = (length + kStretch - 1) / kStretch;
  at::parallel_for(0, layout.rows() * runs * pieces, std::max<int64_t>(1, kStretch / std::min(length, kStretch)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t unit = begin; unit < end; ++unit) {
                       const int64_t run = unit / pieces, offset = unit % pieces * kStretch;
                       draw(key, static_cast<uint64_t>(ids[static_cast<size_t>(run / runs)]),
                            layout.run_key(run % runs) + static_cast<uint64_t>(offset),
                            std::min(kStretch, length - offset), values + run * length + offset, best_random_path());
                     }
                   });
  return out;
}

}  // namespace

torch::Tensor Context::dropout(const torch::Tensor& x, double p, std::string_view operation,
                               std::vector<int64_t> padded_dims) {
  if (!training_ || p == 0.0 || x.numel() == 0) return x;
  REDLINE_CHECK(p > 0.0 && p <= 1.0, "dropout's p lies in [0, 1]");
  if (p == 1.0) return x * 0.0;
  if (draws_ != nullptr) {
    const DropoutDraw drawn = task::dropout_draw(PhiloxKey(), p);
    if (!drawn.active()) return x;
    const torch::Tensor kept =
        draws_->take({DrawSpec::Kind::Dropout, std::string(operation), x.sizes().vec(), std::move(padded_dims), p});
    return torch::where(kept, x * drawn.scale, torch::zeros({}, x.options()));
  }
  const auto samples = static_cast<int64_t>(sample_ids_->size());
  const KeyLayout layout(rows_of_samples(x.sizes(), samples, padded_dims), padded_dims);
  auto mask = std::make_shared<DropoutMask>(DropoutMask{dropout_draw(p, operation), *sample_ids_, layout});
  if (!mask->draw.active()) return x;
  return keyed_dropout(x, std::move(mask));
}

DropoutDraw Context::dropout_draw(double p, std::string_view operation) const {
  if (!training_ || p == 0.0) return {};
  REDLINE_CHECK(draws_ == nullptr, "a traced pass drops by Context::dropout, not inside a kernel");
  return task::dropout_draw(operation_key(seed_, step_, operation), p);
}

torch::Tensor Context::drop_path(const torch::Tensor& x, double p, std::string_view operation) {
  if (!training_ || p == 0.0 || x.numel() == 0) return x;
  REDLINE_CHECK(p > 0.0 && p <= 1.0, "drop_path's p lies in [0, 1]");
  if (p == 1.0) return x * 0.0;
  const torch::Tensor draws = draw_or_take({DrawSpec::Kind::Uniform, std::string(operation), {x.size(0)}, {}});
  const torch::Tensor keep = draws.ge(p).to(torch::kFloat32) * (1.0 / (1.0 - p));
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[0] = x.size(0);
  return x * keep.view(shape).to(x.options());
}

torch::Tensor Context::uniform(std::vector<int64_t> shape, std::string_view operation,
                               std::vector<int64_t> padded_dims) {
  return draw_or_take({DrawSpec::Kind::Uniform, std::string(operation), std::move(shape), std::move(padded_dims)})
      .to(device);
}

torch::Tensor Context::normal(std::vector<int64_t> shape, std::string_view operation,
                              std::vector<int64_t> padded_dims) {
  return draw_or_take({DrawSpec::Kind::Normal, std::string(operation), std::move(shape), std::move(padded_dims)})
      .to(device);
}

torch::Tensor Context::draw_or_take(const DrawSpec& spec) const {
  return draws_ != nullptr ? draws_->take(spec) : draw(spec);
}

torch::Tensor Context::draw(const DrawSpec& spec) const {
  const PhiloxKey key = operation_key(seed_, step_, spec.operation);
  if (spec.kind != DrawSpec::Kind::Dropout)
    return draw_tensor(spec.shape, spec.padded_dims, *sample_ids_, key,
                       spec.kind == DrawSpec::Kind::Uniform ? uniform_run : normal_run);
  std::vector<int64_t> padded_dims = spec.padded_dims;
  const KeyLayout layout(rows_of_samples(spec.shape, static_cast<int64_t>(sample_ids_->size()), padded_dims),
                         padded_dims);
  return kept_elements(spec.shape, {task::dropout_draw(key, spec.p), *sample_ids_, layout}, best_random_path());
}

KeyedStream Context::stream(int64_t sample, std::string_view operation) const {
  REDLINE_CHECK(draws_ == nullptr, "a traced pass has no draws on the host");
  return {seed_, static_cast<uint64_t>(step_), static_cast<uint64_t>(sample), name_key(operation)};
}

}  // namespace redline::task
