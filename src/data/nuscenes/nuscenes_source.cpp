#include "data/nuscenes/nuscenes_source.h"

#include <algorithm>

#include "core/hash.h"
#include "core/strings.h"
#include "data/audio/audio_clip.h"
#include "data/codecs/image.h"
#include "data/nuscenes/rotation.h"
#include "data/workers/item_memory.h"

namespace redline::data::nuscenes {

NuscenesSource::NuscenesSource(const std::filesystem::path& root, Tables tables, LabelGrid grid, int64_t boxes)
    : tables_(std::move(tables)),
      grid_(grid),
      boxes_(boxes),
      guard_(std::make_unique<PathGuard>(root, /*allow_absolute=*/false)) {
  fingerprint_ = mix_key(tables_.frames.size(), tables_.annotations.size());
  for (const KeyFrame& frame : tables_.frames)
    fingerprint_ = mix_key(mix_key(fingerprint_, frame.token.high), frame.token.low);
  for (const std::string& camera : tables_.cameras) fingerprint_ = hash64(camera, fingerprint_);
  for (float value : {grid.step[0], grid.step[1], grid.first[0], grid.first[1]})
    fingerprint_ = hash64(format_double(static_cast<double>(value)), fingerprint_);
  fingerprint_ = mix_key(fingerprint_, static_cast<uint64_t>(grid.rows * 65536 + grid.columns));
}

std::string NuscenesSource::name(int64_t index) const {
  return "sample " + tables_.frames[static_cast<size_t>(index)].token.text();
}

ReadResult NuscenesSource::read(int64_t index, measure::StageClock::Slot& slot) const {
  const auto frame = static_cast<size_t>(index);
  const auto cameras = static_cast<int64_t>(tables_.cameras.size());
  Sample sample;
  Array rots = Array::empty(Dtype::F32, {cameras, 3, 3}), intrins = Array::empty(Dtype::F32, {cameras, 3, 3}),
        trans = Array::empty(Dtype::F32, {cameras, 3}), sizes = Array::empty(Dtype::I64, {cameras, 2});
  const auto narrow = [](double value) { return static_cast<float>(value); };
  {
    const measure::StageScope scope(slot, measure::Stage::Read);
    for (size_t c = 0; c < tables_.cameras.size(); ++c) {
      const View& view = tables_.view(frame, c);
      const std::string where = view.file + " (sample_data token " + view.token.text() + ")";
      BadSample bad;
      const auto file = open_sample(*guard_, view.file, where, bad);
      if (!file) return bad;
      if (file->size() == 0) return BadSample{where, "The file has 0 bytes."};
      if (!charge_memory(file->size())) return BadSample{where, too_large_text()};
      Array bytes = Array::empty(Dtype::U8, {static_cast<int64_t>(file->size())});
      if (!file->read_at(0, std::as_writable_bytes(bytes.as<uint8_t>())))
        return BadSample{where, "The file could not be read to its end."};
      count_bytes(slot, bytes.num_bytes());
      const auto info = probe_image(std::as_bytes(bytes.as<uint8_t>()), where);
      if (const auto* wrong = std::get_if<BadSample>(&info)) return *wrong;
      const ImageInfo& stored = std::get<ImageInfo>(info);
      if (stored.width != view.width || stored.height != view.height)
        return BadSample{where, "The picture has " + std::to_string(stored.width) + " x " +
                                    std::to_string(stored.height) + " pixels, but sample_data.json says " +
                                    std::to_string(view.width) + " x " + std::to_string(view.height) +
                                    ": its calibration would not fit."};
      const Calibration& calibration = tables_.calibrations[static_cast<size_t>(view.calibration)];
      const Matrix3 turn = rotation_matrix(calibration.pose.rotation);
      std::transform(turn.begin(), turn.end(), rots.as<float>().begin() + static_cast<std::ptrdiff_t>(9 * c), narrow);
      std::transform(calibration.intrinsic.begin(), calibration.intrinsic.end(),
                     intrins.as<float>().begin() + static_cast<std::ptrdiff_t>(9 * c), narrow);
      std::transform(calibration.pose.translation.begin(), calibration.pose.translation.end(),
                     trans.as<float>().begin() + static_cast<std::ptrdiff_t>(3 * c), narrow);
      sizes.as<int64_t>()[2 * c] = view.width;
      sizes.as<int64_t>()[2 * c + 1] = view.height;
      sample.set("view" + std::to_string(c) + "_bytes", std::move(bytes));
    }
  }
  const measure::StageScope scope(slot, measure::Stage::Decode);
  sample.set("rots", std::move(rots));
  sample.set("trans", std::move(trans));
  sample.set("intrins", std::move(intrins));
  sample.set("view_sizes", std::move(sizes));
  sample.set("binimgs", label_map(tables_, tables_.frames[frame], grid_));
  if (boxes_ > 0) sample.set("boxes", box_corners(tables_, tables_.frames[frame], boxes_));
  return sample;
}

uint64_t NuscenesSource::content_key(int64_t index) const {
  const auto frame = static_cast<size_t>(index);
  uint64_t key = mix_key(tables_.frames[frame].token.high, tables_.frames[frame].token.low);
  for (size_t c = 0; c < tables_.cameras.size(); ++c) {
    const View& view = tables_.view(frame, c);
    key = hash64(view.file, key);
    const OpenResult opened = guard_->open(view.file);
    if (const auto* file = std::get_if<DataFile>(&opened))
      key = mix_key(mix_key(key, file->size()), static_cast<uint64_t>(file->mtime_ns()));
  }
  return mix_key(key, fingerprint_);
}

}  // namespace redline::data::nuscenes
