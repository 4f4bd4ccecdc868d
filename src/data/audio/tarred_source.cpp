#include "data/audio/tarred_source.h"

#include <cmath>
#include <unordered_map>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/strings.h"

namespace redline::data {

namespace {

constexpr uint64_t kProbeBytes = 64 << 10, kMostWhole = uint64_t{1} << 31;

// "dir/clip.v2-sub3.wav" -> "clip.v2": base name without extension and "-sub<n>".
std::string stem_of(std::string_view name) {
  if (const size_t slash = name.rfind('/'); slash != std::string_view::npos) name.remove_prefix(slash + 1);
  if (const size_t dot = name.rfind('.'); dot != std::string_view::npos && dot > 0) name = name.substr(0, dot);
  if (const size_t sub = name.rfind("-sub"); sub != std::string_view::npos && sub + 4 < name.size() &&
                                             name.find_first_not_of("0123456789", sub + 4) == std::string_view::npos) {
    name = name.substr(0, sub);
  }
  return std::string(name);
}

// The last number in a tar's name: audio_17.tar is shard 17.
int64_t shard_number(const std::filesystem::path& path) {
  const std::string stem = path.stem().string();
  const size_t end = stem.find_last_of("0123456789");
  if (end == std::string::npos) return -1;
  const size_t before = stem.find_last_not_of("0123456789", end);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  return parse_int(stem.substr(begin, end - begin + 1)).value_or(-1);
}

struct MemberTable {
  struct Where {
    uint32_t tar, member;
  };
  std::unordered_multimap<std::string, Where> by_stem;
  std::unordered_map<int64_t, uint32_t> tar_of_shard;

  explicit MemberTable(const TarSet& tars) {
    for (uint32_t t = 0; t < tars.size(); ++t) {
      tar_of_shard.emplace(shard_number(tars.path(t)), t);
      for (uint32_t m = 0; m < tars.index(t).size(); ++m)
        by_stem.emplace(stem_of(tars.index(t).member(m).name), Where{t, m});
    }
  }
  std::optional<Where> find(std::string_view file, int32_t shard) const {
    const auto [begin, end] = by_stem.equal_range(stem_of(file));
    if (begin == end) return std::nullopt;
    const auto wanted = shard >= 0 ? tar_of_shard.find(shard) : tar_of_shard.end();
    std::optional<Where> best;
    for (auto it = begin; it != end; ++it) {
      if (wanted != tar_of_shard.end() && it->second.tar == wanted->second) return it->second;
      if (!best || it->second.tar < best->tar) best = it->second;  // the same choice whatever the hash table's order
    }
    return best;
  }
};

}  // namespace

TarredSource::TarredSource(const std::vector<std::filesystem::path>& manifests,
                           const std::vector<std::filesystem::path>& tars, const AudioRequest& audio,
                           double max_missing_fraction)
    : audio_(audio), tars_(tars) {
  const MemberTable table(tars_);
  fingerprint_ = mix_key(hash64(audio_fingerprint(audio_)), tars_.fingerprint());
  std::vector<size_t> unknown;
  for (const auto& path : manifests) {
    const Manifest manifest = Manifest::read(path);
    fingerprint_ = mix_key(fingerprint_, manifest.fingerprint());
    for (size_t i = 0; i < manifest.size(); ++i) {
      const auto found = table.find(manifest.file(i), manifest.shard(i));
      if (!found) {
        ++num_without_member_;
        continue;
      }
      if (std::isnan(manifest.duration(i))) unknown.push_back(clips_.size());
      clips_.push_back({found->tar, found->member, manifest.offset(i), manifest.duration(i), manifest.duration(i)});
    }
  }
  if (clips_.empty()) {
    throw DataError("None of the " + std::to_string(num_without_member_) + " manifest entries is in the " +
                    std::to_string(tars_.size()) +
                    " tars: do manifest_filepath and tarred_audio_filepaths belong together?");
  }
  const int64_t entries = num_without_member_ + static_cast<int64_t>(clips_.size());
  const double share = static_cast<double>(num_without_member_) / static_cast<double>(entries);
  const std::string found = std::to_string(num_without_member_) + " of " + std::to_string(entries) +
                            " manifest entries (" + format_double(std::round(1000.0 * share) / 10.0) +
                            " %) are not in the " + std::to_string(tars_.size()) + " tars that were listed";
  if (share > max_missing_fraction)
    throw DataError(found + ". List the tars that hold them in tarred_audio_filepaths, or allow it with " +
                    "max_missing_fraction=" + format_double(std::ceil(100.0 * share) / 100.0) + ".");
  if (num_without_member_ > 0) log_warning(found + "; they are left out.");
  const auto measured = measure_all(unknown.size(), [&](size_t i) {
    const Clip& clip = clips_[unknown[i]];
    std::vector<std::byte>& head = thread_bytes();
    if (!tars_.read(clip.tar, clip.member, head, kProbeBytes).empty()) return std::numeric_limits<double>::quiet_NaN();
    if (length_needs_whole_file(head) && !tars_.read(clip.tar, clip.member, head, kMostWhole).empty())
      return std::numeric_limits<double>::quiet_NaN();
    return measure_clip(head, tars_.index(clip.tar).member(clip.member).size, clip.offset);
  });
  for (size_t i = 0; i < unknown.size(); ++i) clips_[unknown[i]].duration = measured[i];
}

std::string TarredSource::name(int64_t index) const {
  const Clip& clip = clips_[static_cast<size_t>(index)];
  std::string text = tars_.name(clip.tar, clip.member);
  if (clip.offset > 0.0) text += " at " + format_double(clip.offset) + " s";
  return text;
}

ReadResult TarredSource::read(int64_t index, measure::StageClock::Slot& slot) const {
  const Clip& clip = clips_[static_cast<size_t>(index)];
  return read_clip(tars_, clip.tar, clip.member, name(index), audio_.clip(clip.offset, clip.wanted), slot);
}

uint64_t TarredSource::content_key(int64_t index) const {
  const Clip& clip = clips_[static_cast<size_t>(index)];
  const double range[2] = {clip.offset, clip.wanted};
  const uint64_t where = mix_key(mix_key(fingerprint_, clip.tar), clip.member);
  return hash64(std::as_bytes(std::span(range)), where);
}

std::vector<int32_t> TarredSource::locality_groups() const {
  std::vector<int32_t> groups;
  groups.reserve(clips_.size());
  for (const Clip& clip : clips_) groups.push_back(static_cast<int32_t>(clip.tar));
  return groups;
}

}  // namespace redline::data
