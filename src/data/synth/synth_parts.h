// What the generators share: one kind per file, items made by several threads. Not for use outside synth*.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/philox.h"
#include "data/synth.h"

namespace redline::data::synth {

// Separate streams for separate purposes, so that adding one never shifts another.
enum class Draw : uint64_t {
  Duration = 1,
  Voice,
  Noise,
  Lexicon,
  Language,
  Length,
  Tokens,
  Chain,
  Image,
  ClassLook,
  Scene
};

inline KeyedStream stream(int64_t seed, uint64_t part, uint64_t item, Draw draw) {
  return KeyedStream(static_cast<uint64_t>(seed), part, item, static_cast<uint64_t>(draw));
}

// Parts of a data set: train and validation draw different items of the same world.
enum class Part : uint64_t { Train = 0, Validation = 1, Noise = 2 };

// exp(normal) around the median, within limits.
double log_normal(KeyedStream& draw, double median, double sigma, double min, double max);

// Calls make(item) for 0..count-1 from several threads; rethrows the first failure.
void for_each_item(int64_t count, int num_threads, const std::function<void(int64_t)>& make);

// Throws DiskError. Folders must exist. Not synced: a generated file can be generated again.
void write_item(const std::filesystem::path& path, std::string_view bytes);

// "000/000123": a thousand files to a folder.
std::string item_name(int64_t item);
void make_item_folders(const std::filesystem::path& folder, int64_t count);

// What can be generated, by the word for it.
struct Maker {
  const char* kind;
  std::vector<std::string> formats;  // besides auto, which takes the first
  SynthResult (*make)(const SynthConfig& config, const std::filesystem::path& out);
  int version = 1;  // part of the cache key: raise it when the output changes
};
const std::vector<Maker>& makers();
const Maker& maker_of(const SynthConfig& config);  // throws ConfigError for an unknown kind

SynthResult make_speech(const SynthConfig& config, const std::filesystem::path& out);
SynthResult make_sequences(const SynthConfig& config, const std::filesystem::path& out);
SynthResult make_images(const SynthConfig& config, const std::filesystem::path& out);
SynthResult make_nuscenes(const SynthConfig& config, const std::filesystem::path& out);

}  // namespace redline::data::synth
