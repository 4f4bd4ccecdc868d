#include "models/lift_splat/work_estimate.h"

namespace redline::models::lift_splat {

namespace {

double product(int64_t rows, int64_t out, int64_t in) {
  return static_cast<double>(rows) * static_cast<double>(out) * static_cast<double>(in);
}

// Multiplications and additions of one camera.
double camera_work(const Options& o) {
  const BackboneOptions& b = o.backbone;
  int64_t h = (o.image_size[0] + b.patch_size - 1) / b.patch_size,
          w = (o.image_size[1] + b.patch_size - 1) / b.patch_size;
  double total = product(h * w, b.embed_dim, 3 * b.patch_size * b.patch_size);
  for (int64_t stage = 0; stage < b.stages(); ++stage) {
    const int64_t c = b.width(stage), n = b.window_size * b.window_size;
    const int64_t windows = ((h + b.window_size - 1) / b.window_size) * ((w + b.window_size - 1) / b.window_size);
    const double attention = product(windows * n, 4 * c, c) + 2.0 * product(windows * n, n, c);
    const double mlp = 2.0 * b.mlp_ratio * product(h * w, c, c);
    total += static_cast<double>(b.depths[static_cast<size_t>(stage)]) * (attention + mlp);
    if (stage + 1 == b.stages()) break;
    h = (h + 1) / 2, w = (w + 1) / 2;
    total += product(h * w, 2 * c, 4 * c);
  }
  const int64_t pixels = (o.image_size[0] / o.downsample()) * (o.image_size[1] / o.downsample()), out = o.neck_channels;
  const int64_t fine = b.width(2), coarse = b.width(3);
  if (o.neck == "fpn")
    total += product(pixels, out, fine) + product(pixels / 4, out, coarse) + 9.0 * product(pixels, out, out);
  else
    total += 9.0 * (product(pixels, out, fine + coarse) + product(pixels, out, out));
  return total + product(pixels, o.grid.depths() + o.cam_channels, out);
}

double grid_work(const Options& o) {
  const int64_t cells = o.grid.cells(0) * o.grid.cells(1), half = cells / 4, quarter = cells / 16, eighth = cells / 64;
  const int64_t in = o.cam_channels * o.grid.cells(2);
  double total = 49.0 * product(half, 64, in) + 4 * 9.0 * product(half, 64, 64);
  total += 9.0 * product(quarter, 128, 64) + 3 * 9.0 * product(quarter, 128, 128) + product(quarter, 128, 64);
  total += 9.0 * product(eighth, 256, 128) + 3 * 9.0 * product(eighth, 256, 256) + product(eighth, 256, 128);
  total += 9.0 * (product(half, 256, 320) + product(half, 256, 256));
  return total + 9.0 * product(cells, 128, 256) + product(cells, o.num_classes(), 128);
}

constexpr int64_t kWinogradSide = 4, kWinogradProducts = 36, kWinogradFewest = 64, kWinogradLanes = 16;

// A 3x3 convolution of `maps` maps: by Winograd's tiles where winograd_fits takes them.
double winograd_work(int64_t maps, int64_t height, int64_t width, int64_t out, int64_t in) {
  const int64_t tiles =
      maps * ((height + kWinogradSide - 1) / kWinogradSide) * ((width + kWinogradSide - 1) / kWinogradSide);
  if (tiles < kWinogradFewest || out % kWinogradLanes != 0 || in % kWinogradLanes != 0)
    return 9.0 * product(maps * height * width, out, in);
  return static_cast<double>(kWinogradProducts) * product(tiles, out, in);
}

// Of the Up block: the map beside it, the small one that is never enlarged, and the second convolution.
double up_work(int64_t maps, int64_t height, int64_t width, int64_t factor, int64_t out, int64_t skip, int64_t small) {
  return winograd_work(maps, height, width, out, skip) +
         9.0 * product(maps * (height / factor) * (width / factor), out, small) +
         winograd_work(maps, height, width, out, out);
}

}  // namespace

double product_flops(const Options& o, int64_t samples, int64_t cameras) {
  const BackboneOptions& b = o.backbone;
  const int64_t maps = samples * cameras, n = b.window_size * b.window_size;
  int64_t h = o.image_size[0] / b.patch_size, w = o.image_size[1] / b.patch_size;
  // Pictures need no gradient; scores of attention are made again in backward, whose four products follow.
  double twice = product(maps * h * w, b.embed_dim, 3 * b.patch_size * b.patch_size), thrice = 0.0, heads = 0.0;
  for (int64_t stage = 0; stage < b.stages(); ++stage) {
    const int64_t c = b.width(stage);
    const int64_t windows = ((h + b.window_size - 1) / b.window_size) * ((w + b.window_size - 1) / b.window_size);
    const auto depth = static_cast<double>(b.depths[static_cast<size_t>(stage)]);
    thrice += depth * (4.0 + 2.0 * b.mlp_ratio) * product(maps * h * w, c, c);
    heads += depth * product(maps * windows * n, n, c);
    if (stage + 1 == b.stages()) break;
    h = (h + 1) / 2, w = (w + 1) / 2;
    thrice += product(maps * h * w, 2 * c, 4 * c);
  }
  const int64_t rows = o.image_size[0] / o.downsample(), columns = o.image_size[1] / o.downsample(),
                out = o.neck_channels, fine = b.width(2), coarse = b.width(3);
  if (o.neck == "fpn")
    thrice += product(maps * rows * columns, out, fine) + product(maps * rows * columns / 4, out, coarse) +
              9.0 * product(maps * rows * columns, out, out);
  else
    thrice += up_work(maps, rows, columns, 2, out, fine, coarse);
  thrice += product(maps * rows * columns, o.grid.depths() + o.cam_channels, out);
  const int64_t x = o.grid.cells(0), y = o.grid.cells(1), in = o.cam_channels * o.grid.cells(2);
  thrice += 49.0 * product(samples * x * y / 4, 64, in) + 4.0 * winograd_work(samples, x / 2, y / 2, 64, 64);
  for (const int64_t side : {int64_t{4}, int64_t{8}}) {  // layer2 and layer3: a step of two, then three of one
    const int64_t wide = 32 * side, cells = samples * (x / side) * (y / side);
    thrice += 10.0 * product(cells, wide, wide / 2) + 3.0 * winograd_work(samples, x / side, y / side, wide, wide);
  }
  thrice += up_work(samples, x / 2, y / 2, 4, 256, 64, 256) + 9.0 * product(samples * x * y / 4, 128, 256) +
            product(samples * x * y, o.num_classes(), 128);
  return 2.0 * (2.0 * twice + 3.0 * thrice + 7.0 * heads);
}

double sample_flops(const Options& options, int64_t cameras) {
  // Backward is two forwards; a multiplication with its addition is two operations.
  return 3.0 * 2.0 * (static_cast<double>(cameras) * camera_work(options) + grid_work(options));
}

}  // namespace redline::models::lift_splat
