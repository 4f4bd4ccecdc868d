// Every picture of 1 x 1 to 8 x 8 pixels, in memory of exactly its size, resized to several sizes: AddressSanitizer
// sees each byte read beyond it. The same picture with room behind it must give the same bytes. `--planted` reads one
// byte too far on purpose: the control.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "data/codecs/image_resize.h"

namespace {

using namespace redline::data;

struct Picture {
  std::unique_ptr<uint8_t[]> pixels;
  RgbView view;
};

Picture make_picture(int32_t width, int32_t height, size_t room) {
  const size_t bytes = static_cast<size_t>(width) * static_cast<size_t>(height) * 3;
  Picture picture{std::make_unique<uint8_t[]>(bytes + room), {}};
  std::memset(picture.pixels.get() + bytes, 0xEE, room);  // must not matter
  for (size_t i = 0; i < bytes; ++i) picture.pixels[i] = static_cast<uint8_t>((i * 37 + bytes * 11) >> 1);
  picture.view = {picture.pixels.get(), width, height, int64_t{width} * 3};
  return picture;
}

void require_same(const Array& a, const Array& b, const char* what) {
  if (a.num_bytes() == b.num_bytes() && std::memcmp(a.data(), b.data(), a.num_bytes()) == 0) return;
  std::fprintf(stderr, "%s differs when there is room behind the picture\n", what);
  std::exit(1);
}

Array normalized(const RgbView& view, const ResizeRequest& request) {
  Array out = Array::empty(Dtype::F32, {3, request.height, request.width});
  resize_normalize_rgb(view, request, {}, out.as<float>());
  return out;
}

int compare_all(int32_t width, int32_t height) {
  const Picture exact = make_picture(width, height, 0), roomy = make_picture(width, height, 64);
  int cases = 0;
  for (const int32_t out : {1, 2, 3, 5, 8, 16, 33}) {
    for (const ResizeFilter filter : {ResizeFilter::Bilinear, ResizeFilter::Bicubic}) {
      for (const bool flip : {false, true}) {
        ResizeRequest request{out, out + out % 3, std::nullopt, filter, flip};
        for (int box = 0; box < 2; ++box) {
          if (box == 1) request.box = CropBox{width * 0.25, height * 0.25, width * 1.0, height * 1.0};
          require_same(resize_rgb(exact.view, request), resize_rgb(roomy.view, request), "a resize");
          require_same(normalized(exact.view, request), normalized(roomy.view, request), "a normalised resize");
          ++cases;
        }
      }
    }
  }
  Array plain = Array::empty(Dtype::F32, {3, height, width}), with_room = Array::empty(Dtype::F32, {3, height, width});
  normalize_rgb(exact.view, false, {}, plain.as<float>());
  normalize_rgb(roomy.view, false, {}, with_room.as<float>());
  require_same(plain, with_room, "a normalisation");
  return cases;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--planted") == 0) {
    const Picture picture = make_picture(4, 4, 0);
    const volatile uint8_t* beyond = picture.pixels.get() + 48;
    std::printf("%d\n", *beyond);
    return 0;
  }
  int cases = 0;
  for (int32_t height = 1; height <= 8; ++height)
    for (int32_t width = 1; width <= 8; ++width) cases += compare_all(width, height);
  std::printf("%d resizes of pictures from 1 x 1 to 8 x 8 pixels stay inside them\n", cases);
  return 0;
}
