// One checkpoint generation on disk: the order of operations that makes it whole or absent, and the checks that tell.
// Free of torch, so that every crash state of the protocol can be tried quickly. Files are handed over as functions
// that write them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/file_ops.h"
#include "train/checkpoint/block_reader.h"
#include "train/checkpoint/manifest.h"

namespace redline::train {

struct GenerationFile {
  std::string name;
  std::function<void(WritableFile&)> write;
  std::optional<FileDigest> digest{};  // of what `write` writes, where that is known beforehand
};

struct GenerationHead {
  int64_t step = 0;
  std::string monitor;
  std::optional<double> metric;
};

std::string generation_name(int64_t step);                        // "step-00012000"
std::optional<int64_t> generation_step(const std::string& name);  // the reverse; nullopt for anything else
// Ascending by step; none when the directory does not exist. Throws DiskError when it cannot be looked into: that there
// is nothing is never concluded from an error.
std::vector<std::filesystem::path> generation_paths(const std::filesystem::path& directory);
// What else lies there and came from a checkpoint: quarantine-step-…, superseded-step-… and (half-written or
// half-removed) .tmp-step-…, .trash-step-…, sorted. Throws as above.
std::vector<std::string> remains_of_generations(const std::filesystem::path& directory);

// Temporary directory, each file written and synced, the manifest last, its directory synced, renamed, the parent
// synced. When this returns, the generation survives a power cut. When it throws, the temporary directory is removed if
// the disk lets us and nothing else has changed. Returns the bytes written.
uint64_t write_generation(const std::filesystem::path& directory, const GenerationHead& head,
                          std::span<const GenerationFile> files, FileOps& ops);

// First renamed to .trash-… and made durable, then deleted: a half-deleted generation never carries the name of a whole
// one. Throws DiskError, leaving it as it is, when a file that no save writes is in it.
void remove_generation(const std::filesystem::path& generation, FileOps& ops);
// Renamed to PREFIX-step-… (numbered when that exists); returns the new path.
std::filesystem::path set_aside(const std::filesystem::path& generation, const std::string& prefix, FileOps& ops);
// Temporary and trash directories that an interrupted process left.
void remove_leftovers(const std::filesystem::path& directory, FileOps& ops);

// The manifest, with the step held against the directory's name and the sizes of the files against the disk. Throws
// DamagedError when something is missing or does not fit, DiskError when that could not be seen (is_damage).
Manifest read_manifest(const std::filesystem::path& generation);

enum class VerifyDepth { Sizes, Crc, Sha256 };
struct VerifyReport {
  std::optional<Manifest> manifest;
  std::vector<Damage> damage;      // every damaged file, with its first damaged block (all of them at depth Sha256)
  std::vector<std::string> extra;  // names that the manifest does not know
  uint64_t bytes_read = 0;
};
// Throws DiskError when a file could not be read: that is no result about the file.
VerifyReport verify_generation(const std::filesystem::path& generation, VerifyDepth depth);

}  // namespace redline::train
