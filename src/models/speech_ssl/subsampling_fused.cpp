// Sub-sampling as one autograd node over tiles of frames. Per tile, in one thread's cache: stem and depthwise rows, the
// pointwise product with bias and ReLU. Backward makes the stem and depthwise rows again, so only the pointwise outputs
// are kept (for 8 clips of 8 s and 256 channels 42 MB, where layer-by-layer autograd keeps 500). Frames past a clip's
// length do not exist: activations are packed [sum of lengths, features, channels].
#include <ATen/Parallel.h>

#include <cstring>

#include "core/check.h"
#include "models/layers/gemm.h"
#include "models/layers/hand_node.h"
#include "models/layers/kept_rows.h"
#include "models/speech_ssl/subsampling.h"
#include "models/speech_ssl/subsampling_kernels.h"

namespace redline::models::speech {

namespace {

using torch::autograd::variable_list;
namespace kernels = subsampling;

constexpr int64_t kTileRows = 320;  // rows of the pointwise product per tile: 320 KB at 256 channels

// Level 0 is the input image, level 1 the stem's output, level s >= 2 a pointwise output.
struct Geometry {
  int64_t batch, channels, pad;
  std::vector<int64_t> features;  // per level
  std::vector<std::vector<int64_t>> lengths,
      first;  // per level and clip: valid frames, and where they start in the packed rows
  int64_t time_out = 0;

  int64_t levels() const { return static_cast<int64_t>(features.size()); }
  int64_t top() const { return levels() - 1; }
  int64_t frames(int64_t level) const { return first[static_cast<size_t>(level)].back(); }
  int64_t length(int64_t level, int64_t b) const { return lengths[static_cast<size_t>(level)][static_cast<size_t>(b)]; }
  int64_t offset(int64_t level, int64_t b) const { return first[static_cast<size_t>(level)][static_cast<size_t>(b)]; }
  int64_t width(int64_t level) const { return features[static_cast<size_t>(level)]; }
  int64_t row_size(int64_t level) const { return width(level) * channels; }
};

Geometry make_geometry(const torch::Tensor& x_BTF, const torch::Tensor& lengths_B, int64_t channels, int64_t stages,
                       int64_t pad) {
  Geometry g{x_BTF.size(0), channels, pad, {x_BTF.size(2)}, {{}}, {}, x_BTF.size(1)};
  for (int64_t b = 0; b < g.batch; ++b) g.lengths[0].push_back(std::min(lengths_B[b].item<int64_t>(), x_BTF.size(1)));
  for (int64_t level = 1; level <= stages; ++level) {
    g.features.push_back(kernels::strided_length(g.features.back(), pad));
    g.time_out = kernels::strided_length(g.time_out, pad);
    std::vector<int64_t> lengths;
    for (int64_t length : g.lengths.back()) lengths.push_back(kernels::strided_length(length, pad));
    g.lengths.push_back(std::move(lengths));
  }
  for (const auto& lengths : g.lengths) {
    std::vector<int64_t> first{0};
    for (int64_t length : lengths) first.push_back(first.back() + length);
    g.first.push_back(std::move(first));
  }
  return g;
}

struct Tile {
  int64_t clip, begin, end;
};
std::vector<Tile> make_tiles(const Geometry& g, int64_t level) {
  const int64_t frames = std::max<int64_t>(1, kTileRows / g.width(level));
  std::vector<Tile> tiles;
  for (int64_t b = 0; b < g.batch; ++b)
    for (int64_t t = 0; t < g.length(level, b); t += frames)
      tiles.push_back({b, t, std::min(t + frames, g.length(level, b))});
  return tiles;
}

// [C, 1, 3, 3] -> [9][C].
torch::Tensor taps_first(const torch::Tensor& weight) {
  return weight.detach().reshape({weight.size(0), -1}).t().contiguous();
}
// [D, C * F] (channel-major, as NeMo flattens) <-> [D, F * C] (as rows lie here).
torch::Tensor features_first(const torch::Tensor& weight, int64_t channels) {
  return weight.detach().view({weight.size(0), channels, -1}).transpose(1, 2).reshape({weight.size(0), -1});
}
torch::Tensor channels_first(const torch::Tensor& weight, int64_t channels) {
  return weight.view({weight.size(0), -1, channels}).transpose(1, 2).reshape({weight.size(0), -1});
}

struct StageWeights {
  torch::Tensor depthwise, depthwise_bias, pointwise, pointwise_bias;  // taps first; [C, C]
  GemmOperand pointwise_operand;
};
struct Weights {
  torch::Tensor stem, stem_bias, out, out_bias;
  std::vector<StageWeights> stages;  // of levels 2, 3, ...
};

// Inputs of the node, in this order: stem (weight, bias), out (weight, bias), then per stage depthwise and pointwise
// (weight, bias).
constexpr size_t kFixedInputs = 4, kStageInputs = 4;

Weights make_weights(const std::vector<torch::Tensor>& inputs, int64_t channels, torch::ScalarType type, GemmUse use) {
  Weights w{taps_first(inputs[0]),
            inputs[1].detach().contiguous(),
            features_first(inputs[2], channels),
            inputs[3].detach(),
            {}};
  for (size_t i = kFixedInputs; i < inputs.size(); i += kStageInputs) {
    StageWeights s{taps_first(inputs[i]),
                   inputs[i + 1].detach().contiguous(),
                   inputs[i + 2].reshape({channels, channels}).contiguous(),
                   inputs[i + 3].detach().contiguous(),
                   {}};
    s.pointwise_operand = GemmOperand(s.pointwise, type, use);
    w.stages.push_back(std::move(s));
  }
  return w;
}

// One thread's buffers and its view of the pass.
struct Worker {
  const Geometry& g;
  const Weights& w;
  const float* image;  // [B, T, F]
  int64_t image_time;
  const std::vector<torch::Tensor>& levels;  // packed activations; [0] and (with more than one level) [1] are undefined
  TileGemm gemm;
  std::vector<float> input_rows, stem_rows[3], widened_rows[3], zeros;
  int64_t stem_row_of[3] = {-1, -1, -1}, stem_clip = -1, widened_row_of[3] = {-1, -1, -1}, widened_level = -1;

  Worker(const Geometry& geometry, const Weights& weights, const torch::Tensor& x,
         const std::vector<torch::Tensor>& activations, torch::ScalarType type)
      : g(geometry),
        w(weights),
        image(x.const_data_ptr<float>()),
        image_time(x.size(1)),
        levels(activations),
        gemm(type),
        input_rows(static_cast<size_t>(3 * input_stride())),
        zeros(static_cast<size_t>(g.channels), 0.0f) {
    for (auto& row : stem_rows) row.resize(static_cast<size_t>(g.row_size(1)));
  }
  int64_t input_stride() const { return g.width(0) + g.pad + 2; }

  void gather(int64_t b, int64_t t) {
    kernels::gather_input_rows(image + b * image_time * g.width(0), g.length(0, b), g.width(0), t, g.pad,
                               input_rows.data(), input_stride());
  }
  // The stem's output row, made once and kept until three newer ones have come.
  const float* stem_row(int64_t b, int64_t t) {
    if (t < 0 || t >= g.length(1, b)) return nullptr;
    const auto slot = static_cast<size_t>(t % 3);
    if (stem_clip != b) std::fill(std::begin(stem_row_of), std::end(stem_row_of), -1);
    stem_clip = b;
    if (stem_row_of[slot] != t) {
      gather(b, t);
      kernels::stem_row(input_rows.data(), input_stride(), g.width(1), w.stem.const_data_ptr<float>(),
                        w.stem_bias.const_data_ptr<float>(), g.channels, stem_rows[slot].data());
      stem_row_of[slot] = t;
    }
    return stem_rows[slot].data();
  }
  const float* activation_row(int64_t level, int64_t b, int64_t t) {
    if (level == 1) return stem_row(b, t);
    if (t < 0 || t >= g.length(level, b)) return nullptr;
    const int64_t row = g.offset(level, b) + t;
    const KeptRows kept(levels[static_cast<size_t>(level)]);
    const auto slot = static_cast<size_t>(t % 3);  // neighbours, so three of them are ready at once
    if (widened_level != level) std::fill(std::begin(widened_row_of), std::end(widened_row_of), -1);
    widened_level = level;
    if (widened_row_of[slot] == row) return widened_rows[slot].data();
    const float* found = kept.rows(row, row + 1, widened_rows[slot]);
    if (found == widened_rows[slot].data()) widened_row_of[slot] = row;
    return found;
  }
  // Depthwise output of a tile of `level`: y[frame][feature][channel].
  void depthwise_tile(int64_t level, const Tile& tile, float* y) {
    const StageWeights& s = w.stages[static_cast<size_t>(level - 2)];
    for (int64_t t = tile.begin; t < tile.end; ++t) {
      const float* rows[3];
      for (int64_t k = 0; k < 3; ++k) rows[k] = activation_row(level - 1, tile.clip, 2 * t - g.pad + k);
      kernels::depthwise_row(rows, g.width(level - 1), g.width(level), g.pad, s.depthwise.const_data_ptr<float>(),
                             s.depthwise_bias.const_data_ptr<float>(), g.channels, zeros.data(),
                             y + (t - tile.begin) * g.row_size(level));
    }
  }
};

void forward_stem_only(Worker& worker, const Tile& tile, float* out) {
  for (int64_t t = tile.begin; t < tile.end; ++t)
    std::memcpy(out + (t - tile.begin) * worker.g.row_size(1), worker.stem_row(tile.clip, t),
                static_cast<size_t>(worker.g.row_size(1)) * sizeof(float));
}

void forward_stage(Worker& worker, int64_t level, const Tile& tile, std::vector<float>& y, float* out) {
  const Geometry& g = worker.g;
  const StageWeights& s = worker.w.stages[static_cast<size_t>(level - 2)];
  const int64_t rows = (tile.end - tile.begin) * g.width(level), c = g.channels;
  y.resize(static_cast<size_t>(rows * c));
  worker.depthwise_tile(level, tile, y.data());
  worker.gemm.nt(rows, c, c, y.data(), c, s.pointwise_operand, 0.0f, out, c);
  kernels::bias_relu(out, rows, s.pointwise_bias.const_data_ptr<float>(), c);
}

// Where products run in bfloat16 the pointwise outputs are kept so; rows of even length are left operands as they are.
bool keeps_rounded(const Geometry& g, int64_t level, torch::ScalarType type) {
  return bf16_products(type) && level >= 2 && g.row_size(level) % 2 == 0;
}

std::vector<torch::Tensor> forward_levels(const Geometry& g, const Weights& w, const torch::Tensor& x,
                                          torch::ScalarType type) {
  std::vector<torch::Tensor> levels(static_cast<size_t>(g.levels()));
  for (int64_t level = g.top() == 1 ? 1 : 2; level <= g.top(); ++level) {
    torch::Tensor& packed = levels[static_cast<size_t>(level)];
    const bool rounded = keeps_rounded(g, level, type);
    packed = torch::empty({g.frames(level), g.row_size(level)}, rounded ? torch::kBFloat16 : torch::kFloat32);
    float* data = rounded ? nullptr : packed.mutable_data_ptr<float>();
    const std::vector<Tile> tiles = make_tiles(g, level);
    at::parallel_for(0, static_cast<int64_t>(tiles.size()), 1, [&](int64_t begin, int64_t end) {
      Worker worker(g, w, x, levels, type);
      std::vector<float> y, made;
      for (int64_t i = begin; i < end; ++i) {
        const Tile& tile = tiles[static_cast<size_t>(i)];
        const int64_t first = (g.offset(level, tile.clip) + tile.begin) * g.row_size(level);
        const int64_t count = (tile.end - tile.begin) * g.row_size(level);
        if (rounded) made.resize(static_cast<size_t>(count));
        float* out = rounded ? made.data() : data + first;
        if (level == 1)
          forward_stem_only(worker, tile, out);
        else
          forward_stage(worker, level, tile, y, out);
        if (rounded) KeptRows::write(out, count, packed, first);
      }
    });
  }
  return levels;
}

// Sums of one thread over its tiles.
struct PartialGradients {
  torch::Tensor stem, stem_bias, depthwise, depthwise_bias, pointwise, pointwise_bias, next_depthwise;
  explicit PartialGradients(int64_t channels)
      : stem(torch::zeros({kernels::kTaps, channels})),
        stem_bias(torch::zeros({channels})),
        depthwise(torch::zeros({kernels::kTaps, channels})),
        depthwise_bias(torch::zeros({channels})),
        pointwise(torch::zeros({channels, channels})),
        pointwise_bias(torch::zeros({channels})),
        next_depthwise(torch::zeros({kernels::kTaps, channels})) {}
  void add(const PartialGradients& other) {
    stem += other.stem;
    stem_bias += other.stem_bias;
    depthwise += other.depthwise;
    depthwise_bias += other.depthwise_bias;
    pointwise += other.pointwise;
    pointwise_bias += other.pointwise_bias;
    next_depthwise += other.next_depthwise;
  }
};

struct BackwardTile {
  Worker& worker;
  PartialGradients& sums;
  std::vector<float> gz, y, gy, stem_gradient;

  // Gradient at the pointwise output (after its ReLU's gate) of a tile, from the level above's depthwise gradient
  // gy_next (packed); adds to that depthwise layer's weight gradient on the way.
  void gate_from_next(int64_t level, const Tile& tile, const float* gy_next) {
    const Geometry& g = worker.g;
    const StageWeights& next = worker.w.stages[static_cast<size_t>(level - 1)];
    const int64_t next_length = g.length(level + 1, tile.clip), next_row = g.row_size(level + 1);
    for (int64_t t = tile.begin; t < tile.end; ++t) {
      const float* activation = worker.activation_row(level, tile.clip, t);
      const float* rows[3] = {};
      for (int64_t k = 0; k < 3; ++k) {
        const int64_t doubled = t + g.pad - k;
        if (doubled < 0 || doubled % 2 != 0 || doubled / 2 >= next_length) continue;
        rows[k] = gy_next + (g.offset(level + 1, tile.clip) + doubled / 2) * next_row;
        kernels::depthwise_row_backward_weight(rows[k], activation, k, g.width(level), g.width(level + 1), g.pad,
                                               g.channels, sums.next_depthwise.mutable_data_ptr<float>());
      }
      kernels::depthwise_row_backward_input(rows, g.width(level), g.width(level + 1), g.pad,
                                            next.depthwise.const_data_ptr<float>(), activation, g.channels,
                                            worker.zeros.data(), gz.data() + (t - tile.begin) * g.row_size(level));
    }
  }

  // Pointwise gradients of the tile; leaves the depthwise output's gradient in gy.
  void pointwise(int64_t level, const Tile& tile, const float* gz_tile) {
    const Geometry& g = worker.g;
    const int64_t rows = (tile.end - tile.begin) * g.width(level), c = g.channels;
    const StageWeights& s = worker.w.stages[static_cast<size_t>(level - 2)];
    y.resize(static_cast<size_t>(rows * c));
    gy.resize(static_cast<size_t>(rows * c));
    worker.depthwise_tile(level, tile, y.data());
    worker.gemm.tn(c, c, rows, gz_tile, c, y.data(), c, 1.0f, sums.pointwise.mutable_data_ptr<float>(), c);
    kernels::add_column_sums(gz_tile, rows, c, sums.pointwise_bias.mutable_data_ptr<float>());
    worker.gemm.nn(rows, c, c, gz_tile, c, s.pointwise_operand, 0.0f, gy.data(), c);
    kernels::add_column_sums(gy.data(), rows, c, sums.depthwise_bias.mutable_data_ptr<float>());
  }

  // From the tile's gy through the first depthwise layer into the stem's sums. A stem row at a tile's edge belongs to
  // two tiles; each adds its own share, which is exact because everything after the ReLU's gate is linear.
  void stem(const Tile& tile) {
    const Geometry& g = worker.g;
    const StageWeights& s = worker.w.stages[0];
    stem_gradient.resize(static_cast<size_t>(g.row_size(1)));
    const int64_t first = std::max<int64_t>(0, 2 * tile.begin - g.pad);
    const int64_t last = std::min(g.length(1, tile.clip), 2 * (tile.end - 1) - g.pad + 3);
    for (int64_t t = first; t < last; ++t) {
      const float* activation = worker.stem_row(tile.clip, t);
      const float* rows[3] = {};
      for (int64_t k = 0; k < 3; ++k) {
        const int64_t doubled = t + g.pad - k;
        if (doubled < 0 || doubled % 2 != 0 || doubled / 2 < tile.begin || doubled / 2 >= tile.end) continue;
        rows[k] = gy.data() + (doubled / 2 - tile.begin) * g.row_size(2);
        kernels::depthwise_row_backward_weight(rows[k], activation, k, g.width(1), g.width(2), g.pad, g.channels,
                                               sums.depthwise.mutable_data_ptr<float>());
      }
      kernels::depthwise_row_backward_input(rows, g.width(1), g.width(2), g.pad, s.depthwise.const_data_ptr<float>(),
                                            activation, g.channels, worker.zeros.data(), stem_gradient.data());
      stem_weights(tile.clip, t, stem_gradient.data());
    }
  }
  void stem_weights(int64_t b, int64_t t, const float* gradient) {
    const Geometry& g = worker.g;
    worker.gather(b, t);
    kernels::stem_row_backward_weight(gradient, worker.input_rows.data(), worker.input_stride(), g.width(1), g.channels,
                                      sums.stem.mutable_data_ptr<float>());
    kernels::add_column_sums(gradient, g.width(1), g.channels, sums.stem_bias.mutable_data_ptr<float>());
  }
};

struct SubsamplingBackward : HandNode {
  Geometry g;
  torch::Tensor x;
  std::vector<torch::Tensor> levels;
  torch::ScalarType type = torch::kFloat32;
  size_t num_inputs = 0;

  void release_intermediates() override {
    x.reset();
    levels.clear();
  }
  std::string name() const override { return "SubsamplingBackward"; }
  variable_list apply(variable_list&& grads) override;

 private:
  PartialGradients stage_backward(int64_t level, const Weights& w, const torch::Tensor& gz_top,
                                  const torch::Tensor& gy_next, torch::Tensor& gy_out) const;
};

// gz_top: gated gradient of the top level; gy_next: depthwise gradient of the level above, for the others. gy_out is
// filled for levels above 2 and stays undefined otherwise.
PartialGradients SubsamplingBackward::stage_backward(int64_t level, const Weights& w, const torch::Tensor& gz_top,
                                                     const torch::Tensor& gy_next, torch::Tensor& gy_out) const {
  const std::vector<Tile> tiles = make_tiles(g, level);
  std::vector<PartialGradients> partial;
  for (int i = 0; i < at::get_num_threads(); ++i) partial.emplace_back(g.channels);
  if (level > 2) gy_out = torch::empty({g.frames(level), g.row_size(level)});
  at::parallel_for(0, static_cast<int64_t>(tiles.size()), 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;
    Worker worker(g, w, x, levels, type);
    BackwardTile back{worker, partial[static_cast<size_t>(at::get_thread_num())], {}, {}, {}, {}};
    for (int64_t i = begin; i < end; ++i) {
      const Tile& tile = tiles[static_cast<size_t>(i)];
      const int64_t row = g.row_size(level), offset = (g.offset(level, tile.clip) + tile.begin) * row;
      const float* gz = nullptr;
      if (level == g.top()) {
        gz = gz_top.const_data_ptr<float>() + offset;
      } else {
        back.gz.resize(static_cast<size_t>((tile.end - tile.begin) * row));
        back.gate_from_next(level, tile, gy_next.const_data_ptr<float>());
        gz = back.gz.data();
      }
      if (level == 1) {
        for (int64_t t = tile.begin; t < tile.end; ++t) back.stem_weights(tile.clip, t, gz + (t - tile.begin) * row);
        continue;
      }
      back.pointwise(level, tile, gz);
      if (level == 2)
        back.stem(tile);
      else
        std::memcpy(gy_out.mutable_data_ptr<float>() + offset, back.gy.data(), back.gy.size() * sizeof(float));
    }
  });
  for (size_t i = 1; i < partial.size(); ++i) partial[0].add(partial[i]);
  return partial[0];
}

variable_list SubsamplingBackward::apply(variable_list&& grads) {
  const at::NoGradGuard no_grad;
  variable_list out(num_inputs);
  if (!grads[0].defined()) return out;
  std::vector<torch::Tensor> inputs;
  for (size_t i = 0; i < num_inputs; ++i) inputs.push_back(input(i));
  const Weights w = make_weights(inputs, g.channels, type, GemmUse::kNn);
  const torch::Tensor grad = grads[0].to(torch::kFloat32).contiguous();
  out[3] = grad.sum({0, 1});
  std::vector<torch::Tensor> pieces;
  for (int64_t b = 0; b < g.batch; ++b) pieces.push_back(grad[b].narrow(0, 0, g.length(g.top(), b)));
  const torch::Tensor packed = torch::cat(pieces);
  const torch::Tensor& top = levels[static_cast<size_t>(g.top())];
  out[2] = channels_first(parallel_tn(packed, top, type), g.channels).view_as(inputs[2]);
  torch::Tensor gz = torch::empty(top.sizes());
  const GemmOperand out_weight(w.out, type, GemmUse::kNn);
  const int64_t dim = packed.size(1), row = g.row_size(g.top());
  for_row_tiles(packed.size(0), 64, [&](int64_t begin, int64_t end) {
    float* target = gz.mutable_data_ptr<float>() + begin * row;
    TileGemm(type).nn(end - begin, row, dim, packed.const_data_ptr<float>() + begin * dim, dim, out_weight, 0.0f,
                      target, row);
    std::vector<float> widened;
    kernels::relu_backward(target, KeptRows(top).rows(begin, end, widened), (end - begin) * row);
  });
  const auto as_conv = [](const torch::Tensor& taps) { return taps.t().reshape({taps.size(1), 1, 3, 3}); };
  torch::Tensor gy_next, gy;
  for (int64_t level = g.top(); level >= std::min<int64_t>(2, g.top()); --level) {
    const PartialGradients sums = stage_backward(level, w, gz, gy_next, gy);
    if (level < g.top())
      out[kFixedInputs + kStageInputs * static_cast<size_t>(level - 1)] = as_conv(sums.next_depthwise);
    if (level >= 2) {
      const size_t base = kFixedInputs + kStageInputs * static_cast<size_t>(level - 2);
      out[base + 1] = sums.depthwise_bias;
      out[base + 2] = sums.pointwise.view_as(inputs[base + 2]);
      out[base + 3] = sums.pointwise_bias;
      if (level == 2) out[base] = as_conv(sums.depthwise);
    }
    if (level <= 2) {
      out[0] = as_conv(sums.stem);
      out[1] = sums.stem_bias;
    }
    gy_next = std::exchange(gy, torch::Tensor());
    gz.reset();
  }
  return out;
}

}  // namespace

torch::Tensor fused_subsampling(const SubsamplingImpl& module, const torch::Tensor& x_BTF,
                                const torch::Tensor& lengths_B) {
  std::vector<torch::Tensor> inputs{module.stem()->weight, module.stem()->bias, module.out()->weight,
                                    module.out()->bias};
  for (const auto& stage : module.stages())
    for (const torch::Tensor& t :
         {stage.depthwise->weight, stage.depthwise->bias, stage.pointwise->weight, stage.pointwise->bias})
      inputs.push_back(t);
  const auto node = make_node<SubsamplingBackward>(inputs);
  const torch::ScalarType type = gemm_type();
  torch::Tensor out;
  {
    const at::NoGradGuard no_grad;
    const torch::Tensor x = x_BTF.contiguous();
    const int64_t channels = module.stem()->weight.size(0);
    Geometry g = make_geometry(x, lengths_B.to(torch::kCPU), channels, static_cast<int64_t>(module.stages().size()) + 1,
                               module.pad_left());
    const Weights w = make_weights(inputs, channels, type, GemmUse::kNt);
    std::vector<torch::Tensor> levels = forward_levels(g, w, x, type);
    // Frames past the end are zero before the linear layer, so they come out as its bias.
    const int64_t dim = w.out.size(0), row = g.row_size(g.top());
    out = w.out_bias.expand({g.batch, g.time_out, dim}).contiguous();
    const GemmOperand out_weight(w.out, type, GemmUse::kNt);
    const torch::Tensor& top = levels.back();
    for (int64_t b = 0; b < g.batch; ++b)
      for_row_tiles(g.length(g.top(), b), 64, [&](int64_t begin, int64_t end) {
        const int64_t first = g.offset(g.top(), b) + begin;
        float* to = out.mutable_data_ptr<float>() + (b * g.time_out + begin) * dim;
        if (top.scalar_type() == torch::kBFloat16)
          bf16_multiply(end - begin, dim, row, top, first, *out_weight.low_panels_for(GemmUse::kNt), 1.0f, to, dim);
        else
          TileGemm(type).nt(end - begin, dim, row, top.const_data_ptr<float>() + first * row, row, out_weight, 1.0f, to,
                            dim);
      });
    if (node) {
      node->g = std::move(g);
      node->x = x;
      node->levels = std::move(levels);
      node->type = type;
      node->num_inputs = inputs.size();
    }
  }
  attach(out, node);
  return out;
}

}  // namespace redline::models::speech
