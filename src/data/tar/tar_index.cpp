#include "data/tar_index.h"

#include <array>
#include <cstring>
#include <unordered_map>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/strings.h"
#include "data/tar/tar_header.h"

namespace redline::data {

namespace {

constexpr char kIndexMagic[] = "redline tar index 1\n";
constexpr uint64_t kMaxLongHeader = uint64_t{1} << 20;  // of a long name or a pax header

struct IndexHead {
  uint64_t tar_bytes, count, names_bytes;
  int64_t tar_mtime_ns;
  uint32_t crc, unused;
};

[[noreturn]] void refuse_tar(const std::string& tar_name, uint64_t offset, const std::string& what) {
  throw DataError("The tar '" + tar_name + "' cannot be read: " + what + " at byte " + std::to_string(offset) +
                  ". It may be cut off or damaged; make or fetch it again.");
}

// What a file that is no tar may be instead; tars are read at any place, which a compressed one has not.
void refuse_compressed(const TarIndex::ReadAt& read_at, uint64_t tar_bytes, const std::string& tar_name) {
  struct Magic {
    std::string_view bytes;
    const char *name, *unpack;
  };
  constexpr std::array<Magic, 4> kMagics{{{{"\x1F\x8B", 2}, "gzip", "gunzip"},
                                          {{"\x28\xB5\x2F\xFD", 4}, "zstd", "unzstd"},
                                          {{"\xFD"
                                            "7zXZ",
                                            5},
                                           "xz",
                                           "unxz"},
                                          {{"BZh", 3}, "bzip2", "bunzip2"}}};
  std::array<std::byte, 8> head{};
  if (tar_bytes < head.size() || !read_at(0, head)) return;
  for (const Magic& magic : kMagics)
    if (std::memcmp(head.data(), magic.bytes.data(), magic.bytes.size()) == 0)
      throw DataError("The tar '" + tar_name + "' is compressed with " + magic.name +
                      "; samples are read at any place of a tar, so unpack it first: " + magic.unpack + " '" +
                      tar_name + "'.");
}

// Walks the headers of a tar. `pending` holds what pax and GNU headers say about the next member.
class TarScan {
 public:
  TarScan(const TarIndex::ReadAt& read_at, uint64_t tar_bytes, const std::string& tar_name)
      : read_at_(read_at), tar_bytes_(tar_bytes), tar_name_(tar_name) {}

  // The next regular file, or false at the end.
  bool next(std::string& name, uint64_t& offset, uint64_t& size) {
    tar::Pending pending;
    while (position_ < tar_bytes_) {
      std::array<std::byte, tar::kBlock> block;
      if (tar_bytes_ - position_ < tar::kBlock) refuse_tar(tar_name_, position_, "half a header block");
      if (!read_at_(position_, block)) refuse_tar(tar_name_, position_, "the file ends or fails");
      const auto header = tar::parse_header(block);
      if (header.kind == tar::HeaderKind::End) return false;
      if (header.kind == tar::HeaderKind::Bad) refuse_tar(tar_name_, position_, header.problem);
      const uint64_t content = position_ + tar::kBlock;
      const bool is_file = header.kind == tar::HeaderKind::File;
      const uint64_t stored = is_file ? pending.size.value_or(header.size) : header.size;
      if (stored > tar_bytes_ - content)
        refuse_tar(tar_name_, position_, "a member of " + std::to_string(stored) + " bytes that passes the end");
      position_ = content + (stored + tar::kBlock - 1) / tar::kBlock * tar::kBlock;
      if (header.kind == tar::HeaderKind::LongName || header.kind == tar::HeaderKind::Pax) {
        read_extension(header.kind, content, stored, pending);
        continue;
      }
      if (is_file && !pending.sparse) {
        name = pending.name.empty() ? header.name : pending.name;
        offset = content;
        size = stored;
        return true;
      }
      pending = {};
    }
    return false;
  }

 private:
  void read_extension(tar::HeaderKind kind, uint64_t content, uint64_t size, tar::Pending& pending) {
    if (size > kMaxLongHeader)
      refuse_tar(tar_name_, content, "a long-name header of " + std::to_string(size) + " bytes");
    text_.resize(static_cast<size_t>(size));
    if (!read_at_(content, std::as_writable_bytes(std::span(text_))))
      refuse_tar(tar_name_, content, "the file ends or fails");
    if (kind == tar::HeaderKind::LongName) {
      pending.name = text_.substr(0, text_.find('\0'));
    } else if (!tar::parse_pax(text_, pending)) {
      refuse_tar(tar_name_, content, "a damaged pax header");
    }
  }

  const TarIndex::ReadAt& read_at_;
  uint64_t tar_bytes_;
  const std::string& tar_name_;
  uint64_t position_ = 0;
  std::string text_;
};

std::filesystem::path index_path(const std::filesystem::path& tar_path) { return tar_path.string() + ".redline.idx"; }

}  // namespace

TarIndex TarIndex::scan(const ReadAt& read_at, uint64_t tar_bytes, const std::string& tar_name) {
  refuse_compressed(read_at, tar_bytes, tar_name);
  TarIndex index;
  TarScan walk(read_at, tar_bytes, tar_name);
  std::string name;
  uint64_t offset = 0, size = 0;
  while (walk.next(name, offset, size)) {
    std::string_view plain = name;
    while (starts_with(plain, "./")) plain.remove_prefix(2);
    if (index.entries_.size() == UINT32_MAX - 1) refuse_tar(tar_name, offset, "more than 4294967294 members");
    index.add(plain, offset, size);
  }
  index.build_lookup();
  return index;
}

TarIndex TarIndex::load(const DataFile& tar, const std::filesystem::path& tar_path, bool use_cache) {
  if (use_cache) {
    std::error_code code;
    if (std::filesystem::is_regular_file(index_path(tar_path), code)) {
      try {
        // A member takes at least a block of the tar, more than its entry here.
        if (auto index =
                deserialize(read_file(index_path(tar_path), tar.size() + tar::kBlock), tar.size(), tar.mtime_ns()))
          return std::move(*index);
      } catch (const Error& error) {
        log_debug(std::string("A tar index is not used: ") + error.what());
      }
    }
  }
  const auto read_at = [&](uint64_t offset, std::span<std::byte> out) { return tar.read_at(offset, out); };
  TarIndex index = scan(read_at, tar.size(), tar_path.string());
  if (use_cache) {
    try {
      write_file_atomic(index_path(tar_path), index.serialize(tar.size(), tar.mtime_ns()));
    } catch (const Error& error) {
      log_debug(std::string("A tar index is not kept: ") + error.what());
    }
  }
  return index;
}

void TarIndex::add(std::string_view name, uint64_t offset, uint64_t size) {
  entries_.push_back({offset, size, names_.size(), name.size()});
  names_ += name;
}

void TarIndex::build_lookup() {
  size_t slots = 16;
  while (slots < entries_.size() * 2) slots *= 2;
  lookup_.assign(slots, 0);
  for (size_t i = 0; i < entries_.size(); ++i) {
    const std::string_view name = name_of(entries_[i]);
    size_t slot = hash64(name) & (slots - 1);
    while (lookup_[slot] != 0 && name_of(entries_[lookup_[slot] - 1]) != name) slot = (slot + 1) & (slots - 1);
    lookup_[slot] = static_cast<uint32_t>(i + 1);
  }
}

TarIndex::Member TarIndex::member(size_t i) const {
  const Entry& entry = entries_.at(i);
  return {name_of(entry), entry.offset, entry.size};
}

std::optional<size_t> TarIndex::find(std::string_view name) const {
  if (lookup_.empty()) return std::nullopt;
  size_t slot = hash64(name) & (lookup_.size() - 1);
  while (lookup_[slot] != 0) {
    if (name_of(entries_[lookup_[slot] - 1]) == name) return lookup_[slot] - 1;
    slot = (slot + 1) & (lookup_.size() - 1);
  }
  return std::nullopt;
}

uint64_t TarIndex::fingerprint() const { return hash64(std::as_bytes(std::span(entries_)), hash64(names_)); }

std::string TarIndex::serialize(uint64_t tar_bytes, int64_t tar_mtime_ns) const {
  const auto entries = std::as_bytes(std::span(entries_));
  IndexHead head{tar_bytes, entries_.size(), names_.size(), tar_mtime_ns, 0, 0};
  head.crc = crc32c(std::as_bytes(std::span(names_)), crc32c(entries, crc32c(std::as_bytes(std::span(&head, 1)))));
  std::string out = kIndexMagic;
  out.append(reinterpret_cast<const char*>(&head), sizeof(head));
  out.append(reinterpret_cast<const char*>(entries.data()), entries.size());
  return out + names_;
}

std::optional<TarIndex> TarIndex::deserialize(std::string_view bytes, uint64_t tar_bytes, int64_t tar_mtime_ns) {
  constexpr size_t kMagicBytes = sizeof(kIndexMagic) - 1;
  IndexHead head{};
  if (bytes.size() < kMagicBytes + sizeof(head) || !starts_with(bytes, kIndexMagic)) return std::nullopt;
  std::memcpy(&head, bytes.data() + kMagicBytes, sizeof(head));
  bytes.remove_prefix(kMagicBytes + sizeof(head));
  if (head.tar_bytes != tar_bytes || head.tar_mtime_ns != tar_mtime_ns) return std::nullopt;
  if (head.count > bytes.size() / sizeof(Entry) || bytes.size() - head.count * sizeof(Entry) != head.names_bytes)
    return std::nullopt;
  const uint32_t crc = std::exchange(head.crc, 0);
  if (crc32c(std::as_bytes(std::span(bytes)), crc32c(std::as_bytes(std::span(&head, 1)))) != crc) return std::nullopt;
  TarIndex index;
  index.entries_.resize(static_cast<size_t>(head.count));
  if (head.count > 0) std::memcpy(index.entries_.data(), bytes.data(), index.entries_.size() * sizeof(Entry));
  index.names_ = bytes.substr(index.entries_.size() * sizeof(Entry));
  for (const Entry& entry : index.entries_) {
    const bool inside = entry.name_begin <= head.names_bytes &&
                        entry.name_size <= head.names_bytes - entry.name_begin && entry.offset <= tar_bytes &&
                        entry.size <= tar_bytes - entry.offset;
    if (!inside) return std::nullopt;
  }
  index.build_lookup();
  return index;
}

std::vector<WebSample> group_by_stem(const TarIndex& index) {
  std::vector<WebSample> samples;
  std::unordered_map<std::string_view, size_t> known;
  known.reserve(index.size());
  for (size_t i = 0; i < index.size(); ++i) {
    const std::string_view name = index.member(i).name;
    const size_t slash = name.rfind('/');
    const size_t base = slash == std::string_view::npos ? 0 : slash + 1;
    const size_t dot = name.find('.', base);
    if (dot == std::string_view::npos || dot == base) continue;  // no extension, or a hidden file
    const std::string_view key = name.substr(0, dot);
    const auto [found, is_new] = known.try_emplace(key, samples.size());
    if (is_new) samples.push_back({key, {}});
    samples[found->second].parts.emplace_back(to_lower(name.substr(dot + 1)), i);
  }
  return samples;
}

}  // namespace redline::data
