#include "data/tar/tar_writer.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "core/check.h"
#include "data/tar/tar_header.h"

namespace redline::data {

namespace {

constexpr uint64_t kMaxOctalSize = uint64_t{1} << 33, kRecord = 10240;

struct UstarName {
  std::string_view prefix, name;
  bool fits = false;
};

UstarName split_name(std::string_view name) {
  const bool ascii = std::all_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (!ascii) return {};
  if (name.size() <= 100) return {{}, name, true};
  for (size_t slash = name.find('/'); slash != std::string_view::npos && slash <= 155;
       slash = name.find('/', slash + 1)) {
    if (slash > 0 && name.size() - slash - 1 <= 100 && slash + 1 < name.size())
      return {name.substr(0, slash), name.substr(slash + 1), true};
  }
  return {};
}

std::string tar_header(const UstarName& name, uint64_t size, char type) {
  std::string block(tar::kBlock, '\0');
  const auto put = [&](size_t at, std::string_view text) { block.replace(at, text.size(), text); };
  std::array<char, 16> octal{};
  put(0, name.name);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  std::snprintf(octal.data(), octal.size(), "%011llo", static_cast<unsigned long long>(size));
  put(124, octal.data());
  put(136, "00000000000");
  put(148, "        ");
  block[156] = type;
  put(257, std::string_view("ustar\00000", 8));
  put(329, "0000000");
  put(337, "0000000");
  put(345, name.prefix);
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  std::snprintf(octal.data(), octal.size(), "%06o", sum);
  put(148, std::string_view(octal.data(), 7));
  return block;
}

// The length counts its own digits.
std::string pax_record(std::string_view key, std::string_view value) {
  const size_t rest = key.size() + value.size() + 3;
  size_t length = rest + 1;
  while (std::to_string(length).size() + rest != length) length = std::to_string(length).size() + rest;
  return std::to_string(length) + " " + std::string(key) + "=" + std::string(value) + "\n";
}

}  // namespace

void TarWriter::put(std::string_view bytes) {
  file_->write(std::as_bytes(std::span(bytes)));
  written_ += bytes.size();
}

void TarWriter::add(std::string_view name, std::span<const std::byte> content) {
  REDLINE_CHECK(!name.empty() && name.find('\0') == std::string_view::npos, "tar members have a name");
  const auto pad = [&] { put(std::string((tar::kBlock - written_ % tar::kBlock) % tar::kBlock, '\0')); };
  const UstarName split = split_name(name);
  const bool huge = content.size() >= kMaxOctalSize;
  if (!split.fits || huge) {
    std::string records;
    if (!split.fits) records += pax_record("path", name);
    if (huge) records += pax_record("size", std::to_string(content.size()));
    put(tar_header({{}, "PaxHeader", true}, records.size(), 'x'));
    put(records);
    pad();
  }
  const std::string_view shown = split.fits ? split.name : std::string_view("long-name");
  put(tar_header({split.prefix, shown, true}, huge ? 0 : content.size(), '0'));
  file_->write(content);
  written_ += content.size();
  pad();
}

void TarWriter::finish() {
  put(std::string(2 * tar::kBlock, '\0'));
  put(std::string((kRecord - written_ % kRecord) % kRecord, '\0'));
  file_->sync();
  file_->close();
}

}  // namespace redline::data
