#include "data/codecs/image_axis.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace redline::data::codecs {

namespace {

double bilinear_weight(double x) {
  x = std::abs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

// Keys' cubic with a = -0.5 (IEEE ASSP 29, 1981), as Pillow uses it.
double bicubic_weight(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1.0;
  if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * kA;
  return 0.0;
}

}  // namespace

ResizeAxis make_axis(int32_t in_size, float begin, float end, int32_t out_size, ResizeFilter filter, bool reverse) {
  const bool bicubic = filter == ResizeFilter::Bicubic;
  const double scale = static_cast<double>(end - begin) / out_size;
  const double filter_scale = std::max(scale, 1.0);
  const double support = (bicubic ? 2.0 : 1.0) * filter_scale;
  ResizeAxis axis;
  axis.out_size = out_size;
  axis.max_count = static_cast<int32_t>(std::ceil(support)) * 2 + 1;
  axis.first.resize(static_cast<size_t>(out_size));
  axis.count.resize(static_cast<size_t>(out_size));
  axis.weights.assign(static_cast<size_t>(out_size) * static_cast<size_t>(axis.max_count), 0.0);
  for (int32_t out = 0; out < out_size; ++out) {
    const auto slot = static_cast<size_t>(reverse ? out_size - 1 - out : out);
    const double center = static_cast<double>(begin) + (out + 0.5) * scale;
    const int32_t first = std::max(static_cast<int32_t>(center - support + 0.5), 0);
    const int32_t last = std::min(static_cast<int32_t>(center + support + 0.5), in_size);
    double* weights = axis.weights.data() + slot * static_cast<size_t>(axis.max_count);
    double sum = 0.0;
    for (int32_t i = 0; i < last - first; ++i) {
      const double x = (i + first - center + 0.5) / filter_scale;
      weights[i] = bicubic ? bicubic_weight(x) : bilinear_weight(x);
      sum += weights[i];
    }
    for (int32_t i = 0; i < last - first && sum != 0.0; ++i) weights[i] /= sum;
    axis.first[slot] = first;
    axis.count[slot] = last - first;
  }
  return axis;
}

std::vector<int32_t> fixed_weights(const ResizeAxis& axis) {
  std::vector<int32_t> fixed(axis.weights.size());
  std::transform(axis.weights.begin(), axis.weights.end(), fixed.begin(), [](double w) {
    const double scaled = w * (1 << kPrecisionBits);
    return static_cast<int32_t>(w < 0 ? scaled - 0.5 : scaled + 0.5);
  });
  return fixed;
}

CropBox checked_box(const RgbView& source, const ResizeRequest& request) {
  REDLINE_CHECK(request.width > 0 && request.height > 0 && source.width > 0 && source.height > 0,
                "pictures have an area");
  const CropBox box =
      request.box.value_or(CropBox{0.0, 0.0, static_cast<double>(source.width), static_cast<double>(source.height)});
  REDLINE_CHECK(box.x0 >= 0 && box.y0 >= 0 && box.x1 <= source.width && box.y1 <= source.height,
                "the box lies within the picture");
  REDLINE_CHECK(box.x1 > box.x0 && box.y1 > box.y0, "the box has an area");
  return box;
}

}  // namespace redline::data::codecs
