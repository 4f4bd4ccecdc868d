#include "data/tar_set.h"

#include "core/philox.h"

namespace redline::data {

namespace {
constexpr size_t kOpenTars = 256;  // well below the usual limit of 1,024 descriptors
}

TarSet::TarSet(const std::vector<std::filesystem::path>& paths) {
  tars_.reserve(paths.size());
  for (const auto& path : paths) {
    DataFile file = open_user_file(path);
    Tar tar{path, TarIndex::load(file, path), {}};
    fingerprint_ = mix_key(fingerprint_, tar.index.fingerprint());
    if (paths.size() <= kOpenTars) tar.file = std::move(file);
    tars_.push_back(std::move(tar));
  }
}

std::string TarSet::name(size_t tar, size_t member) const {
  return tars_[tar].path.filename().string() + ":" + std::string(tars_[tar].index.member(member).name);
}

bool TarSet::read(size_t tar, size_t member, std::vector<std::byte>& out, uint64_t limit_bytes) const {
  out.resize(std::min(tars_[tar].index.member(member).size, limit_bytes));
  return read(tar, member, std::span(out));
}

bool TarSet::read(size_t tar, size_t member, std::span<std::byte> out) const {
  const Tar& from = tars_[tar];
  const uint64_t offset = from.index.member(member).offset;
  if (from.file.fd() >= 0) return from.file.read_at(offset, out);
  return open_user_file(from.path).read_at(offset, out);
}

}  // namespace redline::data
