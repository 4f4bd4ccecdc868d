// Reads with read(2): files of /proc report size 0, so whole-file helpers that trust the size do not work on them.
#include "device/host/proc_text.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>

#include "core/strings.h"

namespace redline::device {

std::string proc_text(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return {};
  std::string text;
  std::array<char, 4096> chunk;
  constexpr size_t kLargest = size_t{8} << 20;
  while (text.size() < kLargest) {
    const ssize_t got = ::read(fd, chunk.data(), chunk.size());
    if (got <= 0) break;
    text.append(chunk.data(), static_cast<size_t>(got));
  }
  ::close(fd);
  return text;
}

std::optional<uint64_t> proc_number(const std::filesystem::path& path) {
  const std::string text = trim(proc_text(path));
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::optional<uint64_t> proc_field(std::string_view text, std::string_view name) {
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t newline = text.find('\n', begin);
    const std::string_view line = text.substr(begin, newline == std::string_view::npos ? newline : newline - begin);
    if (line.size() > name.size() && line.starts_with(name)) {
      std::string_view rest = line.substr(name.size());
      if (rest.front() == ':' || rest.front() == '=' || rest.front() == ' ' || rest.front() == '\t') {
        rest.remove_prefix(1);
        while (!rest.empty() && (rest.front() == ' ' || rest.front() == '\t')) rest.remove_prefix(1);
        uint64_t value = 0;
        const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
        if (error == std::errc() && end != rest.data()) return value;
      }
    }
    if (newline == std::string_view::npos) break;
    begin = newline + 1;
  }
  return std::nullopt;
}

}  // namespace redline::device
