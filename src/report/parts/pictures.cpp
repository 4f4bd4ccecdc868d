// PNG as data URIs: the content policy allows those and nothing else, and a picture cannot carry markup as SVG could.
#include "report/parts/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/file_ops.h"
#include "draw/escape.h"

namespace redline::report {

namespace {
constexpr size_t kMostPictures = 8;
constexpr size_t kLargestPicture = size_t{2} << 20;
constexpr std::string_view kPngMagic = "\x89PNG\r\n\x1a\n";
}  // namespace

std::string base64(const std::string& bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = std::min<size_t>(3, bytes.size() - i);
    uint32_t word = 0;
    for (size_t b = 0; b < 3; ++b) word = word << 8 | (b < left ? static_cast<uint8_t>(bytes[i + b]) : 0u);
    for (size_t d = 0; d < 4; ++d) out += d <= left ? kDigits[word >> (18 - 6 * d) & 63] : '=';
  }
  return out;
}

std::string pictures_html(const std::filesystem::path& run_directory, const std::string& run_name) {
  if (run_directory.empty()) return {};
  std::error_code absent;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(run_directory / "plots", absent))
    if (entry.path().extension() == ".png" && entry.is_regular_file(absent) &&
        entry.file_size(absent) <= kLargestPicture)
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  if (files.size() > kMostPictures) files.resize(kMostPictures);
  std::string out;
  for (const auto& file : files) {
    const std::string bytes = read_file(file, kLargestPicture);
    if (!bytes.starts_with(kPngMagic)) continue;
    out += fmt::format(
        "<figure><img alt=\"{0}\" src=\"data:image/png;base64,{1}\"><figcaption>{0} of {2}</figcaption></figure>",
        draw::escape_html(file.stem().string()), base64(bytes), draw::escape_html(run_name));
  }
  return out;
}

}  // namespace redline::report
