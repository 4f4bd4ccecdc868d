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

// Input interval [begin, end) of an axis of in_size pixels becomes full_size pixels, of which out_size are wanted from
// `offset` on.
struct AxisRequest {
  int32_t in_size;
  float begin, end;
  int32_t full_size, offset, out_size;
};

// `reverse` gives the pixels back to front.
ResizeAxis make_axis(const AxisRequest& request, ResizeFilter filter, bool reverse = false) {
  const auto [in_size, begin, end, full_size, offset, out_size] = request;
  const bool bicubic = filter == ResizeFilter::Bicubic;
  const double scale = static_cast<double>(end - begin) / full_size;
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
    const double center = static_cast<double>(begin) + (offset + out + 0.5) * scale;
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

}  // namespace

ResizeAxes make_axes(const RgbView& source, const ResizeRequest& request) {
  const CropBox box = checked_box(source, request);
  const ResizeFilter filter = request.filter;
  if (const auto& w = request.window) {
    REDLINE_CHECK(
        w->x >= 0 && w->y >= 0 && w->x + request.width <= w->full_width && w->y + request.height <= w->full_height,
        "the window lies within the resized picture");
    return {
        make_axis({source.width, 0, static_cast<float>(source.width), w->full_width, w->x, request.width}, filter,
                  request.flip_horizontal),
        make_axis({source.height, 0, static_cast<float>(source.height), w->full_height, w->y, request.height}, filter)};
  }
  return {
      make_axis({source.width, static_cast<float>(box.x0), static_cast<float>(box.x1), request.width, 0, request.width},
                filter, request.flip_horizontal),
      make_axis(
          {source.height, static_cast<float>(box.y0), static_cast<float>(box.y1), request.height, 0, request.height},
          filter)};
}

std::vector<int32_t> fixed_weights(const ResizeAxis& axis) {
  std::vector<int32_t> fixed(axis.weights.size());
  std::transform(axis.weights.begin(), axis.weights.end(), fixed.begin(), [](double w) {
    const double scaled = w * (1 << kPrecisionBits);
    return static_cast<int32_t>(w < 0 ? scaled - 0.5 : scaled + 0.5);
  });
  return fixed;
}

}  // namespace redline::data::codecs
