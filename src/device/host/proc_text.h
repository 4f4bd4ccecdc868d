// Small files of /proc and /sys: whole text, one number, or one "name: value" field. Absent or unreadable is an
// expected outcome.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace redline::device {

std::string proc_text(const std::filesystem::path& path);  // "" when it cannot be read
std::optional<uint64_t> proc_number(const std::filesystem::path& path);
// First line that starts with `name` (then blank, ':' or '='): its value as an unsigned number.
std::optional<uint64_t> proc_field(std::string_view text, std::string_view name);

}  // namespace redline::device
