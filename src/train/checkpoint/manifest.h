// MANIFEST.json: what a generation consists of, so that a reader can tell whole from damaged without trusting anything
// else. It is written last and carries its own CRC32C in the final line; any changed bit in it is seen as well. Format:
// docs/checkpoints.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_ops.h"
#include "core/hash.h"

namespace redline::train {

inline constexpr const char* kManifestName = "MANIFEST.json";
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kStateFile = "state.json";
inline constexpr int kManifestVersion = 1;

struct FileDigest {
  std::string name;
  uint64_t bytes = 0;
  std::string sha256;            // 64 hex digits
  std::vector<uint32_t> crc32c;  // one per MiB
};

struct Manifest {
  int64_t step = 0;
  std::string monitor;
  std::optional<double> metric;
  std::string created;  // UTC
  std::vector<FileDigest> files;

  const FileDigest* find(std::string_view name) const;
};

std::vector<uint32_t> block_checksums(std::span<const std::byte> bytes);  // CRC32C of each block

std::string manifest_text(const Manifest& manifest);
// Throws DamagedError naming `path` (block 0) for any text that is not exactly what manifest_text wrote;
// CheckpointError for a version we do not know.
Manifest parse_manifest(std::string_view text, const std::filesystem::path& path);

// Passes writes on in blocks and takes the digests of exactly what was passed on. Small writes are gathered, so a model
// of ten thousand tensors does not become ten thousand system calls.
class DigestFile final : public WritableFile {
 public:
  DigestFile(WritableFile& inner, std::string name);
  void write(std::span<const std::byte> bytes) override;
  void sync() override;
  void close() override;
  void flush();         // passes on what was gathered, without a sync
  FileDigest digest();  // after close()

 private:
  void emit(std::span<const std::byte> blocks);

  WritableFile& inner_;
  FileDigest digest_;
  Sha256 sha_;
  std::vector<std::byte> pending_;
};

}  // namespace redline::train
