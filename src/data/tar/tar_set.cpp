#include "data/tar/tar_set.h"

#include "core/error.h"
#include "core/philox.h"

namespace redline::data {

namespace {
constexpr size_t kOpenTars = 256;  // well below the usual limit of 1,024 descriptors
}

TarSet::TarSet(const std::vector<std::filesystem::path>& paths) {
  tars_.reserve(paths.size());
  for (const auto& path : paths) {
    DataFile file = open_user_file(path);
    Tar tar{path, TarIndex::load(file, path), {}, file.size(), file.mtime_ns()};
    fingerprint_ = mix_key(fingerprint_, tar.index.fingerprint());
    if (paths.size() <= kOpenTars) tar.file = std::move(file);
    tars_.push_back(std::move(tar));
  }
}

std::string TarSet::name(size_t tar, size_t member) const {
  return tars_[tar].path.filename().string() + ":" + std::string(tars_[tar].index.member(member).name);
}

const DataFile* TarSet::open(size_t tar, DataFile& own, std::string& problem) const {
  const Tar& from = tars_[tar];
  if (from.file.fd() >= 0) return &from.file;
  try {
    own = open_user_file(from.path);
  } catch (const DataError& error) {
    problem = error.what();
    return nullptr;
  }
  if (own.size() == from.size && own.mtime_ns() == from.mtime_ns) return &own;
  problem = "The tar was changed since its index was read (" + std::to_string(own.size()) + " bytes, it had " +
            std::to_string(from.size) + "); start again to read it as it is now.";
  return nullptr;
}

std::string TarSet::read(size_t tar, size_t member, std::vector<std::byte>& out, uint64_t limit_bytes) const {
  out.resize(std::min(tars_[tar].index.member(member).size, limit_bytes));
  return read(tar, member, std::span(out));
}

std::string TarSet::read(size_t tar, size_t member, std::span<std::byte> out) const {
  DataFile own;
  std::string problem;
  const DataFile* file = open(tar, own, problem);
  if (file != nullptr && !file->read_at(tars_[tar].index.member(member).offset, out))
    problem = "The tar ends before this member does.";
  return problem;
}

ReadResult read_clip(const TarSet& tars, size_t tar, size_t member, const std::string& name, const AudioRequest& clip,
                     measure::StageClock::Slot& slot) {
  const TarIndex::Member where = tars.index(tar).member(member);
  if (where.size >= kReadInPartsBytes) {
    DataFile own;
    std::string problem;
    const DataFile* file = tars.open(tar, own, problem);
    if (file == nullptr) return BadSample{name, problem};
    return decode_clip(AudioInput(*file, where.offset, where.size), name, clip, slot);
  }
  std::vector<std::byte>& bytes = thread_bytes();
  {
    const measure::StageScope scope(slot, measure::Stage::Read);
    const std::string problem = tars.read(tar, member, bytes, kReadInPartsBytes);
    if (!problem.empty()) return BadSample{name, problem};
    count_bytes(slot, bytes.size());
  }
  return decode_clip(AudioInput(bytes), name, clip, slot);
}

}  // namespace redline::data
