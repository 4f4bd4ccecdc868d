// The stem and the down-sampling layers: a convolution whose windows do not overlap is a product of gathered patches,
// done tile by tile with its LayerNorm. Patches are ordered (row, column, channel), which in channels-last memory are a
// few straight copies; the weights follow (free when the run is channels-last). Pixels beyond the last whole patch are
// not seen, as in any convolution without padding.
#include "models/convnext/model.h"
#include "models/convnext/row_kernels.h"
#include "models/layers/gemm.h"
#include "models/layers/hand_node.h"
#include "models/layers/kept_rows.h"
#include "models/layers/row_kernels.h"

#include <cstring>

namespace redline::models::convnext::fused {

namespace {

using torch::autograd::variable_list;

constexpr int64_t kPatchTile = 128;
constexpr int64_t kPatchChunkFloats = 1 << 19;

enum PatchInput : size_t { kPixels, kConvWeight, kConvBias, kPatchNormWeight, kPatchNormBias, kNumPatchInputs };

// Where the patches of a picture lie.
struct Patches {
  Patches(const torch::Tensor& x, int64_t side_in)
      : side(side_in), height(x.size(1)), width(x.size(2)), channels(x.size(3)) {
    rows = height / side;
    columns = width / side;
    count = x.size(0) * rows * columns;
  }
  int64_t depth() const { return side * side * channels; }
  int64_t line() const { return side * channels; }  // floats of a patch that lie together
  // Offset of line ky of patch p in the pictures.
  int64_t offset(int64_t p, int64_t ky) const {
    const int64_t image = p / (rows * columns), at = p % (rows * columns);
    return ((image * height + at / columns * side + ky) * width + at % columns * side) * channels;
  }
  // work(offset of a line in the pictures, offset of it in patches that lie one after another).
  template <class Work>
  void lines(int64_t begin, int64_t end, const Work& work) const {
    int64_t at = 0;
    for (int64_t p = begin; p < end; ++p)
      for (int64_t ky = 0; ky < side; ++ky, at += line()) work(offset(p, ky), at);
  }
  void gather(const float* x, int64_t begin, int64_t end, float* to) const {
    lines(begin, end, [&](int64_t place, int64_t at) {
      std::memcpy(to + at, x + place, static_cast<size_t>(line()) * sizeof(float));
    });
  }
  void scatter(const float* from, int64_t begin, int64_t end, float* x) const {
    lines(begin, end, [&](int64_t place, int64_t at) {
      std::memcpy(x + place, from + at, static_cast<size_t>(line()) * sizeof(float));
    });
  }
  // The same between normalised patches, with a deviation for each pixel, and rounded pictures.
  void scatter_normed(const float* hats, const float* deviations, int64_t begin, int64_t end, torch::Tensor& hat,
                      float* rstd) const {
    lines(begin, end, [&](int64_t place, int64_t at) {
      KeptRows::write(hats + at, line(), hat, place);
      std::copy_n(deviations + at / channels, side, rstd + place / channels);
    });
  }
  void gather_normed(const KeptRows& hat, const float* rstd, int64_t begin, int64_t end, float* hats,
                     float* deviations) const {
    std::vector<float> widened;
    lines(begin, end, [&](int64_t place, int64_t at) {
      std::copy_n(hat.run(place, line(), widened), line(), hats + at);
      std::copy_n(rstd + place / channels, side, deviations + at / channels);
    });
  }
  bool covers_all() const { return height % side == 0 && width % side == 0; }
  int64_t side, height, width, channels, rows = 0, columns = 0, count = 0;
};

// [out, in, k, k] -> [out, k k in].
torch::Tensor patch_weight(const torch::Tensor& weight) {
  return weight.permute({0, 2, 3, 1}).contiguous().view({weight.size(0), -1});
}
torch::Tensor conv_weight(const torch::Tensor& matrix, const torch::Tensor& like) {
  return matrix.view({like.size(0), like.size(2), like.size(3), like.size(1)}).permute({0, 3, 1, 2});
}
const float* floats(const torch::Tensor& t) { return t.const_data_ptr<float>(); }
float* line_of(torch::Tensor& t, int64_t row, int64_t width) { return t.mutable_data_ptr<float>() + row * width; }

struct PatchBackward : HandNode {
  int64_t side = 0;
  bool norm_first = false;
  torch::ScalarType type = torch::kFloat32;
  // Of a norm that comes after. One that comes before is made again from the pixels, or where products run in bfloat16
  // kept rounded in their place, hat [N, H, W, C] and rstd [N, H, W].
  KeptRows hat;
  torch::Tensor rstd;
  bool kept_first() const { return norm_first && hat.defined(); }
  void release_intermediates() override {
    hat.reset();
    rstd.reset();
  }
  std::string name() const override { return "PatchLayerBackward"; }

  variable_list apply(variable_list&& grads) override {
    const at::NoGradGuard no_grad;
    variable_list out(kNumPatchInputs);
    if (!grads[0].defined()) return out;
    const torch::Tensor g = grads[0].to(torch::kFloat32).contiguous(), x = kept_first() ? hat.tensor() : input(kPixels);
    const Patches patches(x, side);
    const torch::Tensor weight = patch_weight(input(kConvWeight)), norm_weight = input(kPatchNormWeight),
                        norm_bias = input(kPatchNormBias);
    const GemmOperand operand(weight, type, GemmUse::kNn);
    const TileGemm gemm(type);
    const int64_t dim = weight.size(0), depth = patches.depth(), channels = patches.channels;
    const int64_t pixels = side * side, norm_width = norm_weight.size(0);
    const int64_t chunk = std::min(patches.count, std::max<int64_t>(kPatchTile, kPatchChunkFloats / depth));
    torch::Tensor inputs = torch::empty({chunk, depth}), grad_weight = torch::empty({dim, depth});
    torch::Tensor grad_conv = norm_first ? torch::Tensor() : torch::empty({chunk, dim}), grad_x;
    if (norm_first && wants(kPixels)) grad_x = patches.covers_all() ? torch::empty(x.sizes()) : torch::zeros(x.sizes());
    ColumnSums<float> norm_sums(norm_width, 2), bias_sum(dim);
    for (int64_t start = 0; start < patches.count; start += chunk) {
      const int64_t count = std::min(chunk, patches.count - start);
      for_row_tiles(count, kPatchTile, [&](int64_t begin, int64_t end) {
        const int64_t n = end - begin, first = start + begin;
        float* tile = line_of(inputs, begin, depth);
        if (!kept_first()) patches.gather(floats(x), first, start + end, tile);
        const float* tile_grad = floats(g) + first * dim;
        if (norm_first) {
          std::vector<float> hats(static_cast<size_t>(n * depth)), deviations(static_cast<size_t>(n * pixels)),
              grad_tile(static_cast<size_t>(n * depth));
          if (kept_first())
            patches.gather_normed(hat, floats(rstd), first, start + end, hats.data(), deviations.data());
          else
            rows::normalise(tile, n * pixels, channels, hats.data(), deviations.data());
          rows::affine(hats.data(), floats(norm_weight), floats(norm_bias), n * pixels, channels, tile);
          gemm.nn(n, depth, dim, tile_grad, dim, operand, 0.0f, grad_tile.data(), depth);
          rows::norm_backward(grad_tile.data(), hats.data(), deviations.data(), floats(norm_weight), n * pixels,
                              channels, grad_tile.data(), norm_sums.local(0), norm_sums.local(1));
          if (grad_x.defined()) patches.scatter(grad_tile.data(), first, start + end, grad_x.mutable_data_ptr<float>());
        } else {
          std::vector<float> widened;
          rows::norm_backward(tile_grad, hat.rows(first, start + end, widened), floats(rstd) + first,
                              floats(norm_weight), n, dim, line_of(grad_conv, begin, dim), norm_sums.local(0),
                              norm_sums.local(1));
          tile_grad = line_of(grad_conv, begin, dim);
        }
        rows::add_column_sums(tile_grad, n, dim, bias_sum.local());
      });
      const float* conv_grad = norm_first ? floats(g) + start * dim : floats(grad_conv);
      for_row_tiles(dim, 512, [&](int64_t begin, int64_t end) {
        gemm.tn(end - begin, depth, count, conv_grad + begin, dim, floats(inputs), depth, start > 0 ? 1.0f : 0.0f,
                line_of(grad_weight, begin, depth), depth);
      });
    }
    release_intermediates();
    out[kPixels] = grad_x;
    out[kConvWeight] = conv_weight(grad_weight, input(kConvWeight));
    out[kConvBias] = bias_sum.total();
    out[kPatchNormWeight] = norm_sums.total(0);
    out[kPatchNormBias] = norm_sums.total(1);
    return out;
  }
};

}  // namespace

torch::Tensor patch_layer(const PatchLayer& layer, const torch::Tensor& x_in) {
  const torch::Tensor x = x_in.contiguous();
  const torch::ScalarType type = gemm_type();
  const bool rounded = bf16_products(type), keeps_first = rounded && layer->norm_first;
  const auto node =
      make_node<PatchBackward>({x, layer->conv->weight, layer->conv->bias, layer->norm->weight, layer->norm->bias},
                               /*let_go=*/keeps_first ? 1 : 0);
  torch::Tensor out;
  {
    const at::NoGradGuard no_grad;
    const Patches patches(x, layer->size);
    const torch::Tensor weight = patch_weight(layer->conv->weight);
    const GemmOperand operand(weight, type, GemmUse::kNt);
    const int64_t dim = weight.size(0), depth = patches.depth(), pixels = layer->size * layer->size;
    const bool norm_first = layer->norm_first;
    const float *norm_weight = floats(layer->norm->weight), *norm_bias = floats(layer->norm->bias);
    out = torch::empty({x.size(0), patches.rows, patches.columns, dim});
    torch::Tensor hat, rstd;  // as floats, or rounded at once
    if (!norm_first) {
      hat = torch::empty({patches.count, dim}, rounded ? torch::kBFloat16 : torch::kFloat32);
      rstd = torch::empty({patches.count});
    } else if (node && keeps_first) {
      hat = torch::empty(x.sizes(), torch::kBFloat16);
      rstd = torch::empty({x.size(0), x.size(1), x.size(2)});
    }
    for_row_tiles(patches.count, kPatchTile, [&](int64_t begin, int64_t end) {
      const TileGemm gemm(type);
      const int64_t n = end - begin;
      std::vector<float> tile(static_cast<size_t>(n * depth)), deviations(static_cast<size_t>(n * pixels));
      float* to = line_of(out, begin, dim);
      patches.gather(floats(x), begin, end, tile.data());
      if (norm_first) {
        rows::normalise(tile.data(), n * pixels, patches.channels, tile.data(), deviations.data());
        if (hat.defined())
          patches.scatter_normed(tile.data(), deviations.data(), begin, end, hat, rstd.mutable_data_ptr<float>());
        rows::affine(tile.data(), norm_weight, norm_bias, n * pixels, patches.channels, tile.data());
      }
      gemm.nt(n, dim, depth, tile.data(), depth, operand, 0.0f, to, dim);
      rows::add_bias(to, floats(layer->conv->bias), n, dim);
      if (!norm_first) {
        float* hats = rounded ? to : line_of(hat, begin, dim);
        rows::normalise(to, n, dim, hats, line_of(rstd, begin, 1));
        if (rounded) KeptRows::write(hats, n * dim, hat, begin * dim);
        rows::affine(hats, norm_weight, norm_bias, n, dim, to);
      }
    });
    if (node) {
      node->side = layer->size;
      node->norm_first = norm_first;
      node->type = type;
      node->hat = KeptRows(hat);
      node->rstd = rstd;
    }
  }
  attach(out, node);
  return out;
}

}  // namespace redline::models::convnext::fused
