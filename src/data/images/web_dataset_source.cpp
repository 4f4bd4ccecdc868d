#include "data/images/web_dataset_source.h"

#include <array>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/strings.h"
#include "data/files/json_lines.h"
#include "data/workers/item_memory.h"

namespace redline::data {

namespace {

constexpr uint64_t kWebHeadBytes = 64 << 10, kWebMetaBytes = 1 << 20;

bool is_payload(WebKind kind, std::string_view extension) {
  constexpr std::array<std::string_view, 10> kAudio{"wav",  "flac", "mp3",  "ogg",  "oga",
                                                    "opus", "aif",  "aiff", "aifc", "au"};
  constexpr std::array<std::string_view, 3> kImages{"jpg", "jpeg", "png"};
  // "left.wav" of "a.left.wav" counts by its last part.
  if (const size_t dot = extension.rfind('.'); dot != std::string_view::npos) extension.remove_prefix(dot + 1);
  return kind == WebKind::Audio ? std::find(kAudio.begin(), kAudio.end(), extension) != kAudio.end()
                                : std::find(kImages.begin(), kImages.end(), extension) != kImages.end();
}

Array label_array(int64_t label) {
  Array array = Array::empty(Dtype::I64, {});
  array.as<int64_t>()[0] = label;
  return array;
}

}  // namespace

WebDatasetSource::WebDatasetSource(const std::vector<std::filesystem::path>& tars, WebKind kind,
                                   const AudioRequest& audio)
    : kind_(kind), audio_(audio), tars_(tars) {
  fingerprint_ = mix_key(hash64(kind == WebKind::Audio ? audio_fingerprint(audio_) : "images"), tars_.fingerprint());
  int64_t without = 0;
  std::string found;
  for (uint32_t t = 0; t < tars_.size(); ++t) {
    for (const WebSample& sample : group_by_stem(tars_.index(t))) {
      Item item;
      item.tar = t;
      bool has_payload = false;
      for (const auto& [extension, member] : sample.parts) {
        const uint32_t number = static_cast<uint32_t>(member);
        if (is_payload(kind, extension) && !has_payload)
          item.payload = number, has_payload = true;
        else if (extension == "cls")
          item.label = number;
        else if (extension == "json")
          item.json = number;
        if (found.size() < 100 && found.find(extension) == std::string::npos)
          found += (found.empty() ? "" : ", ") + extension;
      }
      if (has_payload)
        items_.push_back(item);
      else
        ++without;
    }
  }
  const char* wanted = kind == WebKind::Audio ? "wav, flac, mp3, ogg, opus or aiff" : "jpg, jpeg or png";
  if (items_.empty()) {
    throw DataError("The tars hold no " + std::string(wanted) + " member (found: " + printable(found) +
                    "); first tar: " + (tars.empty() ? "none" : printable(tars[0].string())) + ".");
  }
  if (without > 0)
    log_info(std::to_string(without) + " samples of the tars have no " + wanted + " member; they are left out.");
}

std::string WebDatasetSource::name(int64_t index) const {
  const Item& item = items_[static_cast<size_t>(index)];
  return tars_.name(item.tar, item.payload);
}

WebDatasetSource::Meta WebDatasetSource::read_meta(const Item& item) const {
  Meta meta;
  std::vector<std::byte> bytes;
  const auto text = [&](uint32_t member) -> std::string_view {
    if (!tars_.read(item.tar, member, bytes, kWebMetaBytes).empty()) return {};
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  };
  if (item.label != UINT32_MAX) meta.label = parse_int(trim(text(item.label)));
  if (item.json != UINT32_MAX) {
    thread_local JsonObjectParser parser;
    Meta read;
    const auto problem = parser.parse(text(item.json), [&](std::string_view key, const JsonValue& value) {
      if (const auto seconds = value.number(); key == "duration" && seconds && *seconds >= 0.0)
        read.duration = *seconds;
      if ((key == "label" || key == "cls") && !read.label) read.label = value.whole_number();
    });
    if (!problem) {
      if (read.duration) meta.duration = read.duration;
      if (!meta.label) meta.label = read.label;
    }
  }
  return meta;
}

ReadResult WebDatasetSource::read(int64_t index, measure::StageClock::Slot& slot) const {
  const Item& item = items_[static_cast<size_t>(index)];
  const std::string sample_name = name(index);
  std::optional<int64_t> label;
  if (item.label != UINT32_MAX || (kind_ == WebKind::Images && item.json != UINT32_MAX)) {
    const measure::StageScope scope(slot, measure::Stage::Read);
    label = read_meta(item).label;
    if (!label) return BadSample{sample_name, "Its cls or json member holds no label (a whole number)."};
  }
  ReadResult result = kind_ == WebKind::Audio ? read_clip(tars_, item.tar, item.payload, sample_name, audio_, slot)
                                              : read_picture(item, sample_name, slot);
  if (auto* sample = std::get_if<Sample>(&result); sample != nullptr && label)
    sample->set("label", label_array(*label));
  return result;
}

ReadResult WebDatasetSource::read_picture(const Item& item, const std::string& sample_name,
                                          measure::StageClock::Slot& slot) const {
  const measure::StageScope scope(slot, measure::Stage::Read);
  const uint64_t size = tars_.index(item.tar).member(item.payload).size;
  if (!charge_memory(size)) return BadSample{sample_name, too_large_text()};
  Array bytes = Array::empty(Dtype::U8, {static_cast<int64_t>(size)});
  const std::string problem = tars_.read(item.tar, item.payload, std::as_writable_bytes(bytes.as<uint8_t>()));
  if (!problem.empty()) return BadSample{sample_name, problem};
  count_bytes(slot, bytes.num_bytes());
  Sample sample;
  sample.set("image_bytes", std::move(bytes));
  return sample;
}

double WebDatasetSource::measure(const Item& item) const {
  if (item.json != UINT32_MAX) {
    if (const auto duration = read_meta(item).duration) return *duration;
  }
  std::vector<std::byte>& head = thread_bytes();
  if (!tars_.read(item.tar, item.payload, head, kWebHeadBytes).empty()) return std::numeric_limits<double>::quiet_NaN();
  const uint64_t size = tars_.index(item.tar).member(item.payload).size;
  if (length_needs_whole_file(head) && !tars_.read(item.tar, item.payload, head, size).empty())
    return std::numeric_limits<double>::quiet_NaN();
  return measure_clip(head, size, 0.0);
}

double WebDatasetSource::length(int64_t index) const {
  if (kind_ == WebKind::Images) return 1.0;
  std::call_once(measured_,
                 [this] { durations_ = measure_all(items_.size(), [this](size_t i) { return measure(items_[i]); }); });
  return durations_[static_cast<size_t>(index)];
}

std::vector<int32_t> WebDatasetSource::locality_groups() const {
  std::vector<int32_t> groups;
  groups.reserve(items_.size());
  for (const Item& item : items_) groups.push_back(static_cast<int32_t>(item.tar));
  return groups;
}

}  // namespace redline::data
