// Small text helpers shared by every room: quantities with units, "did you mean", and what may reach a terminal.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace redline {

std::vector<std::string> split(std::string_view text, char separator);
std::string join(std::span<const std::string> parts, std::string_view separator);
std::string trim(std::string_view text);
bool starts_with(std::string_view text, std::string_view prefix);
bool ends_with(std::string_view text, std::string_view suffix);
std::string to_lower(std::string_view text);

// Control characters (C0, DEL, C1, also as UTF-8) become \xNN, so do invalid UTF-8 bytes and the marks that reorder
// text (U+202E and its kin): file names and configs are not trusted.
std::string printable(std::string_view text);
// The same for a whole page: line ends stay.
std::string printable_lines(std::string_view text);

// Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment) that turn one word into the
// other.
size_t edit_distance(std::string_view a, std::string_view b);

// Bytes of the UTF-8 character at the front of a non-empty text; 0 when it is not valid UTF-8.
size_t utf8_size(std::string_view text);

// A JSON string with its quotes; invalid UTF-8 becomes U+FFFD, so that the result always parses.
std::string json_quote(std::string_view text);

// The candidate nearest to `word` by edit distance, if near enough to be a likely slip.
std::optional<std::string> did_you_mean(std::string_view word, std::span<const std::string> candidates);

std::string format_bytes(uint64_t bytes);                    // "1.5 GiB"
std::string format_seconds(double seconds);                  // "350 us", "1.25 s", "2 h 05 min"
std::string format_count(double value);                      // "12.3 k"
std::optional<uint64_t> parse_bytes(std::string_view text);  // "8GiB", "512 MB", "1024"
std::optional<double> parse_seconds(
    std::string_view text);  // "180s", "3m", "1h30m", "00:10:00:00" (Lightning DD:HH:MM:SS)
std::optional<int64_t> parse_int(std::string_view text);
std::optional<double> parse_double(std::string_view text);
std::string format_double(double value);  // shortest text that reads back equal

}  // namespace redline
