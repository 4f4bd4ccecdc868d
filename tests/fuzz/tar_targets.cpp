#include <cstring>

#include "core/error.h"
#include "core/string_file.h"
#include "data/tar_index.h"
#include "data/tar_writer.h"
#include "target.h"

namespace redline::fuzz {

namespace {

using namespace redline::data;

std::string sample_tar() {
  std::string out;
  TarWriter writer(std::make_unique<StringFile>(&out));
  const auto add = [&](const std::string& name, size_t size) {
    const std::string content(size, 'x');
    writer.add(name, std::as_bytes(std::span(content)));
  };
  add("a.wav", 700);
  add(std::string(180, 'n') + ".flac", 20);
  add("dir/b.json", 0);
  add("dir/b.jpg", 513);
  writer.finish();
  return out.substr(0, out.size() - 4096);
}

bool scan_tar(std::span<const std::byte> bytes) {
  const auto read_at = [&](uint64_t offset, std::span<std::byte> out) {
    if (offset > bytes.size() || out.size() > bytes.size() - offset) return false;
    std::memcpy(out.data(), bytes.data() + offset, out.size());
    return true;
  };
  try {
    const TarIndex index = TarIndex::scan(read_at, bytes.size(), "fuzz.tar");
    for (size_t i = 0; i < index.size(); ++i) {
      const auto member = index.member(i);
      require(member.offset <= bytes.size() && member.size <= bytes.size() - member.offset,
              "members lie within the tar");
      require(index.find(member.name).has_value(), "every member can be found");
    }
    for (const auto& sample : group_by_stem(index))
      require(!sample.parts.empty() && !sample.key.empty(), "groups have members");
    const auto again = TarIndex::deserialize(index.serialize(bytes.size(), 7), bytes.size(), 7);
    require(again && again->fingerprint() == index.fingerprint(), "an index survives being stored");
    return true;
  } catch (const DataError&) {
    return false;
  }
}

// Header checksums right again wherever a block looks like a header.
void repair_tar(std::string& bytes) {
  for (size_t at = 0; at + 512 <= bytes.size(); at += 512) {
    if (std::memcmp(bytes.data() + at + 257, "ustar", 5) != 0) continue;
    std::memset(bytes.data() + at + 148, ' ', 8);
    unsigned sum = 0;
    for (size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(bytes[at + i]);
    char text[8];
    std::snprintf(text, sizeof(text), "%06o", sum);
    std::memcpy(bytes.data() + at + 148, text, 7);
  }
}

constexpr uint64_t kIndexedBytes = 1 << 20;

std::string sample_index() {
  const std::string tar = sample_tar();
  const auto read_at = [&](uint64_t offset, std::span<std::byte> out) {
    std::memcpy(out.data(), tar.data() + offset, out.size());
    return true;
  };
  return TarIndex::scan(read_at, tar.size(), "x").serialize(kIndexedBytes, 7);
}

bool load_index(std::span<const std::byte> bytes) {
  const auto index =
      TarIndex::deserialize({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, kIndexedBytes, 7);
  if (!index) return false;
  for (size_t i = 0; i < index->size(); ++i) {
    const auto member = index->member(i);
    require(member.offset + member.size <= kIndexedBytes, "members lie within the tar");
    index->find(member.name);
  }
  return true;
}

}  // namespace

std::vector<Target> tar_targets() {
  return {{"tar", scan_tar, [] { return std::vector<std::string>{sample_tar()}; }, repair_tar},
          {"tar_side_file", load_index, [] { return std::vector<std::string>{sample_index()}; }, {}}};
}

}  // namespace redline::fuzz
