// Format: proc(5), "/proc/pid/mountinfo". Blanks in paths are written as octal escapes (\040).
#include "device/host/mounts.h"

#include <algorithm>

#include "core/strings.h"

namespace redline::device {
namespace {

std::string unescape_octal(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '7'; };
    if (text[i] == '\\' && digit(i + 1) && digit(i + 2) && digit(i + 3)) {
      plain.push_back(static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0')));
      i += 3;
    } else {
      plain.push_back(text[i]);
    }
  }
  return plain;
}

}  // namespace

std::vector<Mount> parse_mountinfo(std::string_view text) {
  std::vector<Mount> mounts;
  for (const std::string& line : split(text, '\n')) {
    const std::vector<std::string> words = split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) continue;
    const std::vector<std::string> device = split(words[2], ':');
    if (device.size() != 2) continue;
    Mount mount;
    mount.major = static_cast<int>(parse_int(device[0]).value_or(0));
    mount.minor = static_cast<int>(parse_int(device[1]).value_or(0));
    mount.root = unescape_octal(words[3]);
    mount.mount_point = unescape_octal(words[4]);
    mount.fstype = dash[1];
    mount.source = unescape_octal(dash[2]);
    mount.super_options = dash[3];
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

const Mount* mount_of(const std::vector<Mount>& mounts, const std::filesystem::path& absolute) {
  const std::string path = absolute.lexically_normal().string();
  const Mount* best = nullptr;
  for (const Mount& mount : mounts) {
    const std::string& point = mount.mount_point;
    const bool inside = point == "/" || path == point || (starts_with(path, point) && path[point.size()] == '/');
    if (inside && (best == nullptr || point.size() >= best->mount_point.size())) best = &mount;
  }
  return best;
}

}  // namespace redline::device
