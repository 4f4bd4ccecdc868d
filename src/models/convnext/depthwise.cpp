// The register tiles are written with the compiler's vector types, once for sixteen lanes (AVX-512) and once for eight;
// plain loops would leave it to the compiler to see that the tile fits into registers, and it does not.
#include "models/convnext/depthwise.h"

#include <ATen/Parallel.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "models/layers/hand_node.h"
#include "models/layers/panel_gemm.h"

namespace redline::models::convnext {

namespace {

std::atomic<bool> narrow_wanted{false};

template <int kLanes>
struct Wide;
template <>
struct Wide<16> {
  typedef float type __attribute__((vector_size(64), aligned(4), may_alias));
};
template <>
struct Wide<8> {
  typedef float type __attribute__((vector_size(32), aligned(4), may_alias));
};

constexpr int64_t kTile = 8;  // outputs of a full register tile

int64_t round_to(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Floats at a 64-byte boundary.
class AlignedFloats {
 public:
  explicit AlignedFloats(int64_t count) : storage_(static_cast<size_t>(count + 16), 0.0f) {
    const auto address = reinterpret_cast<uintptr_t>(storage_.data());
    data_ = storage_.data() + (64 - address % 64) % 64 / sizeof(float);
  }
  float* data() { return data_; }

 private:
  std::vector<float> storage_;
  float* data_;
};

// A vector's worth of channels [first, first + count) of pictures [begin, end).
struct Unit {
  int64_t first, count, begin, end;
};

struct SumJob {
  MapShape shape;
  const float *x, *weight, *bias, *residual;
  float* out;
};
struct GradJob {
  MapShape shape;
  const float *x, *grad;
  float* sums;  // [groups][50][C]: taps and bias
};

// One row of pixels into the plane: pixel i at plane[(left + i) * lanes], zeros elsewhere (the plane starts as zeros
// and nothing else is ever written there).
template <int kLanes>
REDLINE_TILE void copy_row(const float* row, int64_t width, int64_t channels, int64_t count, int64_t left,
                           float* plane) {
  typedef typename Wide<kLanes>::type Vec;
  float* to = plane + left * kLanes;
  if (count == kLanes) {
    for (int64_t i = 0; i < width; ++i)
      *reinterpret_cast<Vec*>(to + i * kLanes) = *reinterpret_cast<const Vec*>(row + i * channels);
    return;
  }
  for (int64_t i = 0; i < width; ++i)
    for (int64_t c = 0; c < count; ++c) to[i * kLanes + c] = row[i * channels + c];
}

// kOut outputs of a row: sums[i] += sum over taps. `plane` points at the leftmost pixel of the first output's window in
// the row of tap 0.
template <int kLanes, int kOut>
REDLINE_TILE void sum_tile(const float* plane, int64_t plane_row, const float* weight, int64_t tap_begin,
                           int64_t tap_end, typename Wide<kLanes>::type* sums) {
  typedef typename Wide<kLanes>::type Vec;
  Vec acc[kOut];
  for (int i = 0; i < kOut; ++i) acc[i] = sums[i];
  for (int64_t ky = tap_begin; ky < tap_end; ++ky) {
    const float* in = plane + ky * plane_row;
    const float* w = weight + ky * kSide * kLanes;
    Vec taps[kSide];
#pragma GCC unroll 7
    for (int k = 0; k < kSide; ++k) taps[k] = *reinterpret_cast<const Vec*>(w + k * kLanes);
#pragma GCC unroll 14
    for (int i = 0; i < kOut + kSide - 1; ++i) {
      const Vec pixel = *reinterpret_cast<const Vec*>(in + i * kLanes);
#pragma GCC unroll 7
      for (int k = 0; k < kSide; ++k)
        if (i - k >= 0 && i - k < kOut) acc[i - k] += pixel * taps[k];
    }
  }
  for (int i = 0; i < kOut; ++i) sums[i] = acc[i];
}

template <int kLanes, int kOut>
REDLINE_TILE void sum_outputs(const SumJob& job, const Unit& unit, const float* plane, int64_t plane_row,
                              const float* weight, const float* start, int64_t tap_begin, int64_t tap_end,
                              int64_t valid, int64_t pixel) {
  typedef typename Wide<kLanes>::type Vec;
  Vec sums[kOut];
  for (int i = 0; i < kOut; ++i) sums[i] = *reinterpret_cast<const Vec*>(start);
  sum_tile<kLanes, kOut>(plane, plane_row, weight, tap_begin, tap_end, sums);
  const int64_t channels = job.shape.channels;
  for (int i = 0; i < kOut; ++i) {
    if (i >= valid) break;
    const int64_t at = (pixel + i) * channels + unit.first;
    if (unit.count == kLanes) {
      if (job.residual != nullptr) sums[i] += *reinterpret_cast<const Vec*>(job.residual + at);
      *reinterpret_cast<Vec*>(job.out + at) = sums[i];
    } else {
      float part[kLanes];
      std::memcpy(part, &sums[i], sizeof(part));
      for (int64_t c = 0; c < unit.count; ++c)
        job.out[at + c] = part[c] + (job.residual != nullptr ? job.residual[at + c] : 0.0f);
    }
  }
}

template <int kLanes>
REDLINE_TILE void sum_unit_of(const SumJob& job, const Unit& unit) {
  const MapShape& s = job.shape;
  // Rows of the plane: three zeros, the pixels, and zeros as far as the last tile reads.
  const int64_t plane_row = (round_to(s.width, kTile) + kSide - 1) * kLanes;
  AlignedFloats plane(s.height * plane_row), weight(kTaps * kLanes), start(kLanes);
  for (int64_t k = 0; k < kTaps; ++k)
    std::memcpy(weight.data() + k * kLanes, job.weight + k * s.channels + unit.first,
                static_cast<size_t>(unit.count) * sizeof(float));
  if (job.bias != nullptr)
    std::memcpy(start.data(), job.bias + unit.first, static_cast<size_t>(unit.count) * sizeof(float));
  for (int64_t n = unit.begin; n < unit.end; ++n) {
    for (int64_t y = 0; y < s.height; ++y)
      copy_row<kLanes>(job.x + (n * s.height + y) * s.width * s.channels + unit.first, s.width, s.channels, unit.count,
                       kPad, plane.data() + y * plane_row);
    for (int64_t y = 0; y < s.height; ++y) {
      const int64_t tap_begin = std::max<int64_t>(0, kPad - y), tap_end = std::min(kSide, s.height + kPad - y);
      for (int64_t x = 0; x < s.width;) {
        const int64_t left = s.width - x, pixel = (n * s.height + y) * s.width + x;
        const float* window = plane.data() + (y - kPad) * plane_row + x * kLanes;
        if (left > 4) {
          sum_outputs<kLanes, 8>(job, unit, window, plane_row, weight.data(), start.data(), tap_begin, tap_end, left,
                                 pixel);
          x += 8;
        } else if (left > 2) {
          sum_outputs<kLanes, 4>(job, unit, window, plane_row, weight.data(), start.data(), tap_begin, tap_end, left,
                                 pixel);
          x += 4;
        } else {
          sum_outputs<kLanes, 2>(job, unit, window, plane_row, weight.data(), start.data(), tap_begin, tap_end, left,
                                 pixel);
          x += 2;
        }
      }
    }
  }
}

// sums[k] += gradient of kOut outputs times the pixels their tap k sees.
template <int kLanes, int kOut>
REDLINE_TILE void grad_tile(const float* in, const float* grad, typename Wide<kLanes>::type* sums) {
  typedef typename Wide<kLanes>::type Vec;
  Vec g[kOut];
  for (int i = 0; i < kOut; ++i) g[i] = *reinterpret_cast<const Vec*>(grad + i * kLanes);
#pragma GCC unroll 14
  for (int i = 0; i < kOut + kSide - 1; ++i) {
    const Vec pixel = *reinterpret_cast<const Vec*>(in + i * kLanes);
#pragma GCC unroll 7
    for (int k = 0; k < kSide; ++k)
      if (i - k >= 0 && i - k < kOut) sums[k] += pixel * g[i - k];
  }
}

template <int kLanes>
REDLINE_TILE void grad_unit_of(const GradJob& job, const Unit& unit, float* sums_out) {
  typedef typename Wide<kLanes>::type Vec;
  const MapShape& s = job.shape;
  const int64_t padded = round_to(s.width, kTile), plane_row = (padded + kSide - 1) * kLanes,
                grad_row = padded * kLanes;
  AlignedFloats plane(s.height * plane_row), grad(s.height * grad_row), total((kTaps + 1) * kLanes);
  for (int64_t n = unit.begin; n < unit.end; ++n) {
    for (int64_t y = 0; y < s.height; ++y) {
      const int64_t at = (n * s.height + y) * s.width * s.channels + unit.first;
      copy_row<kLanes>(job.x + at, s.width, s.channels, unit.count, kPad, plane.data() + y * plane_row);
      copy_row<kLanes>(job.grad + at, s.width, s.channels, unit.count, 0, grad.data() + y * grad_row);
    }
    for (int64_t ky = 0; ky < kSide; ++ky) {
      Vec sums[kSide];
      for (int k = 0; k < kSide; ++k) sums[k] = *reinterpret_cast<const Vec*>(total.data() + (ky * kSide + k) * kLanes);
      const int64_t first = std::max<int64_t>(0, kPad - ky), last = std::min(s.height, s.height + kPad - ky);
      for (int64_t y = first; y < last; ++y) {
        const float *in = plane.data() + (y + ky - kPad) * plane_row, *g = grad.data() + y * grad_row;
        int64_t x = 0;
        for (; x + 4 < s.width; x += 8) grad_tile<kLanes, 8>(in + x * kLanes, g + x * kLanes, sums);
        if (x + 2 < s.width)
          grad_tile<kLanes, 4>(in + x * kLanes, g + x * kLanes, sums);
        else if (x < s.width)
          grad_tile<kLanes, 2>(in + x * kLanes, g + x * kLanes, sums);
      }
      for (int k = 0; k < kSide; ++k) *reinterpret_cast<Vec*>(total.data() + (ky * kSide + k) * kLanes) = sums[k];
    }
    Vec bias = *reinterpret_cast<const Vec*>(total.data() + kTaps * kLanes);
    for (int64_t y = 0; y < s.height; ++y)
      for (int64_t x = 0; x < s.width; ++x)
        bias += *reinterpret_cast<const Vec*>(grad.data() + y * grad_row + x * kLanes);
    *reinterpret_cast<Vec*>(total.data() + kTaps * kLanes) = bias;
  }
  for (int64_t k = 0; k <= kTaps; ++k)
    std::memcpy(sums_out + k * s.channels + unit.first, total.data() + k * kLanes,
                static_cast<size_t>(unit.count) * sizeof(float));
}

REDLINE_WIDE_TARGET void sum_unit_wide(const SumJob& job, const Unit& unit) { sum_unit_of<16>(job, unit); }
void sum_unit_narrow(const SumJob& job, const Unit& unit) { sum_unit_of<8>(job, unit); }
REDLINE_WIDE_TARGET void grad_unit_wide(const GradJob& job, const Unit& unit, float* sums) {
  grad_unit_of<16>(job, unit, sums);
}
void grad_unit_narrow(const GradJob& job, const Unit& unit, float* sums) { grad_unit_of<8>(job, unit, sums); }

bool wide() { return panels::wide() && !narrow_wanted.load(std::memory_order_relaxed); }

// How many pictures a unit takes: enough to pay for its weights and planes, few enough that all threads have some. No
// part of the answer is the number of threads.
int64_t images_per_unit(const MapShape& s) {
  constexpr int64_t kPixels = 512;
  return std::max<int64_t>(1, kPixels / std::max<int64_t>(1, s.height * s.width));
}

// work(unit, group) for all channels and pictures.
template <class Work>
void for_units(const MapShape& s, int64_t lanes, int64_t group, const Work& work) {
  const int64_t parts = (s.channels + lanes - 1) / lanes, groups = (s.images + group - 1) / group;
  at::parallel_for(0, parts * groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t g = i / parts, first = i % parts * lanes;
      work(Unit{first, std::min(lanes, s.channels - first), g * group, std::min(s.images, (g + 1) * group)}, g);
    }
  });
}

}  // namespace

void use_narrow_depthwise(bool on) { narrow_wanted = on; }

void depthwise_sum(const MapShape& shape, const float* x, const float* weight, const float* bias, const float* residual,
                   float* out) {
  const SumJob job{shape, x, weight, bias, residual, out};
  const bool is_wide = wide();
  for_units(shape, is_wide ? 16 : 8, images_per_unit(shape),
            [&](const Unit& unit, int64_t) { is_wide ? sum_unit_wide(job, unit) : sum_unit_narrow(job, unit); });
}

void depthwise_weight_grad(const MapShape& shape, const float* x, const float* grad, float* weight_grad,
                           float* bias_grad) {
  const bool is_wide = wide();
  // Every group of pictures has its own sums, which are then added in order.
  const int64_t group = std::max(images_per_unit(shape), (shape.images + 15) / 16);
  const int64_t groups = std::max<int64_t>(1, (shape.images + group - 1) / group);
  const int64_t line = (kTaps + 1) * shape.channels;
  torch::Tensor sums = torch::zeros({groups, line});
  auto* all = sums.mutable_data_ptr<float>();
  const GradJob job{shape, x, grad, all};
  for_units(shape, is_wide ? 16 : 8, group, [&](const Unit& unit, int64_t g) {
    is_wide ? grad_unit_wide(job, unit, all + g * line) : grad_unit_narrow(job, unit, all + g * line);
  });
  for (int64_t g = 1; g < groups; ++g)
    for (int64_t i = 0; i < line; ++i) all[i] += all[g * line + i];
  std::memcpy(weight_grad, all, static_cast<size_t>(kTaps * shape.channels) * sizeof(float));
  std::memcpy(bias_grad, all + kTaps * shape.channels, static_cast<size_t>(shape.channels) * sizeof(float));
}

torch::Tensor taps_first(const torch::Tensor& weight, bool flipped) {
  const torch::Tensor taps = weight.reshape({weight.size(0), kTaps}).t();
  return (flipped ? taps.flip(0) : taps).contiguous();
}

torch::Tensor channels_first(const torch::Tensor& taps) {
  return taps.t().contiguous().view({taps.size(1), 1, kSide, kSide});
}

namespace {

struct DepthwiseBackward : HandNode {
  std::string name() const override { return "DepthwiseBackward"; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    const at::NoGradGuard no_grad;
    torch::autograd::variable_list out(3);
    if (!grads[0].defined()) return out;
    const torch::Tensor x = input(0), g = grads[0].to(torch::kFloat32).contiguous();
    const MapShape shape{x.size(0), x.size(1), x.size(2), x.size(3)};
    if (wants(0)) {
      out[0] = torch::empty_like(g);
      const torch::Tensor taps = taps_first(input(1), /*flipped=*/true);
      depthwise_sum(shape, g.const_data_ptr<float>(), taps.const_data_ptr<float>(), nullptr, nullptr,
                    out[0].mutable_data_ptr<float>());
    }
    torch::Tensor taps = torch::empty({kTaps, shape.channels}), bias = torch::empty({shape.channels});
    depthwise_weight_grad(shape, x.const_data_ptr<float>(), g.const_data_ptr<float>(), taps.mutable_data_ptr<float>(),
                          bias.mutable_data_ptr<float>());
    out[1] = channels_first(taps);
    out[2] = bias;
    return out;
  }
};

}  // namespace

torch::Tensor depthwise7(const torch::Tensor& x_in, const torch::Tensor& weight, const torch::Tensor& bias) {
  const torch::Tensor x = x_in.contiguous();
  const auto node = make_node<DepthwiseBackward>({x, weight, bias});
  torch::Tensor out;
  {
    const at::NoGradGuard no_grad;
    out = torch::empty(x.sizes());
    const torch::Tensor taps = taps_first(weight, /*flipped=*/false);
    depthwise_sum({x.size(0), x.size(1), x.size(2), x.size(3)}, x.const_data_ptr<float>(), taps.const_data_ptr<float>(),
                  bias.const_data_ptr<float>(), nullptr, out.mutable_data_ptr<float>());
  }
  attach(out, node);
  return out;
}

}  // namespace redline::models::convnext
