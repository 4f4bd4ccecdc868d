#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/hash.h"
#include "core/string_file.h"
#include "data/codecs/audio_writer.h"
#include "data/codecs/image.h"
#include "data/codecs/image_writer.h"
#include "data/images/web_dataset_source.h"
#include "data/tar/tar_writer.h"
#include "data/tar_index.h"
#include "target.h"

namespace redline::fuzz {

namespace {

using namespace redline::data;

std::string sample_tar() {
  std::string out;
  TarWriter writer(std::make_unique<StringFile>(&out));
  const auto add = [&](const std::string& name, const std::string& content) {
    writer.add(name, std::as_bytes(std::span(content)));
  };
  const std::vector<float> quiet(100, 0.25f);
  Array picture = Array::zeros(Dtype::U8, {3, 4, 3});
  add("a.wav", encode_wav(quiet, 8000, 1, {WavEncoding::Pcm16, false}));
  add("a.json", "{\"duration\": 0.0125, \"label\": 3}");
  add(std::string(180, 'n') + ".flac", encode_flac(quiet, 16000));
  add("dir/b.cls", "7");
  add("dir/b.png", encode_png(rgb_view(picture)));
  add("dir/empty.json", "");
  writer.finish();
  return out.substr(0, out.size() - 4096);
}

// Members as samples: grouped by stem, read and decoded as audio and as pictures. Accepted when one was.
bool read_samples(std::span<const std::byte> bytes) {
  static measure::StageClock clock{1};
  const MemoryFile file(text_of(bytes));
  bool accepted = false;
  for (const WebKind kind : {WebKind::Audio, WebKind::Images}) {
    try {
      const WebDatasetSource source({file.path()}, kind);
      for (int64_t i = 0; i < std::min<int64_t>(source.size(), 64); ++i) {
        require(source.length(i) >= 0 || std::isnan(source.length(i)), "lengths are numbers");
        const auto result = source.read(i, clock.slot(0));
        const auto* sample = std::get_if<Sample>(&result);
        if (sample == nullptr) continue;
        accepted = true;
        if (const Array* stored = sample->find("image_bytes")) {
          ImageRequest request;
          request.max_pixels = 1 << 16;
          request.resize = ResizeRequest{.width = 8, .height = 8};
          std::vector<float> row(3 * 8 * 8);
          decode_image_normalized(std::as_bytes(stored->as<uint8_t>()), "fuzz", request, {}, row);
        }
      }
    } catch (const DataError&) {
    }
  }
  return accepted;
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
  } catch (const DataError&) {
    return false;
  }
  return read_samples(bytes);
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

// Magic (20 bytes), the head with its checksum, then entries and names, all under the checksum.
void repair_index(std::string& bytes) {
  constexpr size_t kHead = 20, kSum = kHead + 32, kBody = kHead + 40;
  if (bytes.size() < kBody) return;
  std::memset(bytes.data() + kSum, 0, 4);
  const auto all = std::as_bytes(std::span(bytes));
  const uint32_t sum = crc32c(all.subspan(kBody), crc32c(all.subspan(kHead, 40)));
  std::memcpy(bytes.data() + kSum, &sum, 4);
}

}  // namespace

std::vector<Target> tar_targets() {
  return {{"tar", scan_tar, [] { return std::vector<std::string>{sample_tar()}; }, repair_tar},
          {"tar_side_file", load_index, [] { return std::vector<std::string>{sample_index()}; }, repair_index}};
}

}  // namespace redline::fuzz
