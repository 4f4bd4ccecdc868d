// Mutated safetensors files through the real header checks and the real block reader, built with AddressSanitizer and
// UBSan (hence without torch and without gtest). Each file is refused with a sentence, or read completely into buffers
// of the claimed sizes. Control: a reader with unchecked arithmetic is fooled by some of the same files, so the
// mutations do reach the attacks. 10,000 files; 100,000 with REDLINE_SLOW=1. With libFuzzer: -DREDLINE_LIBFUZZER and
// -fsanitize=fuzzer.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <unistd.h>

#include "core/error.h"
#include "core/hash.h"
#include "core/philox.h"
#include "train/checkpoint/block_reader.h"
#include "train/safetensors_header.h"

namespace {

using redline::KeyedStream;
using namespace redline::train;

// Accepted files must satisfy this, stated apart from the parser: sizes agree, and every byte has exactly one owner.
void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "invariant broken: %s\n", what);
  std::abort();
}

StoredHeader parse_file_bytes(std::string_view bytes) {
  if (bytes.size() < 8) throw redline::CheckpointError("too short");
  const std::span<const uint8_t, 8> length(reinterpret_cast<const uint8_t*>(bytes.data()), 8);
  const uint64_t header = parse_header_length(length, bytes.size(), "fuzz");
  return parse_stored_header(bytes.substr(8, header), bytes.size() - 8 - header, "fuzz");
}

bool accept_and_check(std::string_view bytes) {
  StoredHeader header;
  try {
    header = parse_file_bytes(bytes);
  } catch (const redline::CheckpointError&) {
    return false;
  }
  std::vector<uint8_t> owners;
  for (const StoredEntry& entry : header.entries) {
    unsigned __int128 wanted = stored_type_bytes(entry.type);
    for (int64_t dim : entry.shape) wanted *= static_cast<unsigned __int128>(dim);
    require(wanted == entry.bytes(), "type and shape give the size of the data");
    if (owners.size() < entry.end) owners.resize(entry.end);
    for (uint64_t i = entry.begin; i < entry.end; ++i) require(owners[i]++ == 0, "no byte has two owners");
  }
  for (uint8_t count : owners) require(count == 1, "no byte is without an owner");
  return true;
}

// What a careless reader would do: multiply without looking, trust the shape when it gives zero bytes.
bool careless_reader_is_fooled(const std::string& shape_numbers) {
  uint64_t product = 4;
  bool truth_differs = false;
  unsigned __int128 truth = 4;
  const char* at = shape_numbers.c_str();
  while (*at != '\0') {
    char* end = nullptr;
    const uint64_t dim = std::strtoull(at, &end, 10);
    if (end == at) break;
    product *= dim;
    truth *= dim;
    truth_differs |= truth > UINT64_MAX;
    at = *end == ',' ? end + 1 : end;
  }
  return truth_differs && product == 0;
}

std::string valid_file(KeyedStream& random) {
  std::vector<StoredEntry> entries;
  const int64_t count = random.uniform_int(0, 6);
  for (int64_t i = 0; i < count; ++i) {
    StoredEntry entry{"layer." + std::to_string(i) + (i % 2 ? ".wéight" : ".bias"),
                      static_cast<StoredType>(random.uniform_int(0, 16)),
                      {},
                      0,
                      0};
    for (int64_t d = random.uniform_int(0, 3); d > 0; --d) entry.shape.push_back(random.uniform_int(0, 5));
    entries.push_back(entry);
  }
  const uint64_t data_bytes = place_entries(entries);
  std::map<std::string, std::string> metadata;
  if (random.uniform() < 0.5) metadata["format"] = "pt";
  std::string file = header_bytes(entries, metadata);
  for (uint64_t i = 0; i < data_bytes; ++i) file += static_cast<char>(random.next_u32());
  return file;
}

const char* const kTokens[] = {"18446744073709551615",
                               "4611686018427387904,4",
                               "9223372036854775807",
                               "-1",
                               "0",
                               "1e9",
                               "[[[[",
                               "{{{{",
                               "]",
                               "}",
                               "\"",
                               "\\u0000",
                               "\\ud800",
                               "null",
                               "true",
                               "__metadata__",
                               "\"dtype\":\"F32\"",
                               "\"shape\":[0]",
                               "\"data_offsets\":[0,0]",
                               ",",
                               ":",
                               "F64",
                               "U8",
                               "BF16",
                               "4294967296,4294967296,0",
                               "\xff\xfe",
                               "2.5"};

void replace_number(std::string& file, KeyedStream& random) {
  std::vector<std::pair<size_t, size_t>> numbers;
  for (size_t i = 8; i < file.size() && numbers.size() < 64; ++i) {
    size_t end = i;
    while (end < file.size() && file[end] >= '0' && file[end] <= '9') ++end;
    if (end > i) numbers.emplace_back(i, end - i), i = end;
  }
  if (numbers.empty()) return;
  const auto [at, length] =
      numbers[static_cast<size_t>(random.uniform_int(0, static_cast<int64_t>(numbers.size()) - 1))];
  file.replace(at, length,
               random.uniform() < 0.5 ? kTokens[random.uniform_int(0, 4)]
                                      : std::to_string(random.next_u64() >> random.uniform_int(0, 63)));
}

void fix_length(std::string& file, size_t before) {  // keeps the header's length true, so that mutations get past it
  if (file.size() < 8 || before < 8) return;
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  length += file.size() - before;
  std::memcpy(file.data(), &length, 8);
}

std::string mutate(std::string file, KeyedStream& random) {
  const int64_t rounds = random.uniform_int(1, 4);
  for (int64_t round = 0; round < rounds && !file.empty(); ++round) {
    const auto at = static_cast<size_t>(random.uniform_int(0, static_cast<int64_t>(file.size()) - 1));
    const size_t before = file.size();
    switch (random.uniform_int(0, 7)) {
      case 0:
        file[at] = static_cast<char>(file[at] ^ (1 << random.uniform_int(0, 7)));
        break;
      case 1:
        file[at] = static_cast<char>(random.next_u32());
        break;
      case 2:
        file.resize(at);
        break;
      case 3:
        file.erase(at, static_cast<size_t>(random.uniform_int(1, 16))), fix_length(file, before);
        break;
      case 4:
        file.insert(at, kTokens[random.uniform_int(0, static_cast<int64_t>(std::size(kTokens)) - 1)]),
            fix_length(file, before);
        break;
      case 5:
        file.insert(at, file.substr(at, static_cast<size_t>(random.uniform_int(1, 64)))), fix_length(file, before);
        break;
      case 6:
        file.append(static_cast<size_t>(random.uniform_int(1, 9)), '\0');
        break;
      default:
        replace_number(file, random), fix_length(file, before);
        break;
    }
  }
  return file;
}

// The whole path of a reader: open, header, buffers of exactly the claimed sizes, threads that fill them.
bool read_from_disk(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const InputFile file(path);
  const StoredHeader header = parse_file_bytes(bytes);
  std::vector<std::vector<std::byte>> buffers;
  std::vector<std::pair<uint64_t, size_t>> order;
  const uint64_t data_bytes = [&] {
    uint64_t end = 0;
    for (const StoredEntry& entry : header.entries) end = std::max(end, entry.end);
    return end;
  }();
  for (const StoredEntry& entry : header.entries) {
    buffers.emplace_back(entry.bytes());
    order.emplace_back(entry.begin, buffers.size() - 1);
  }
  std::sort(order.begin(), order.end());
  std::vector<FileSegment> segments;
  for (const auto& [begin, index] : order) {
    if (!buffers[index].empty()) segments.push_back({file.bytes() - data_bytes + begin, buffers[index]});
  }
  read_segments(file, segments, {}, 2);
  std::string joined;
  for (const FileSegment& segment : segments) {
    joined.append(reinterpret_cast<const char*>(segment.target.data()), segment.target.size());
  }
  return joined == bytes.substr(bytes.size() - data_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  accept_and_check(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}

#ifndef REDLINE_LIBFUZZER
int main() {
  const char* slow = std::getenv("REDLINE_SLOW");
  const int files = slow != nullptr && std::strcmp(slow, "1") == 0 ? 100'000 : 10'000;
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("redline_fuzz_" + std::to_string(::getpid()) + ".safetensors");
  int accepted = 0, fooled = 0;
  for (int i = 0; i < files; ++i) {
    KeyedStream random(20261115, 0, static_cast<uint64_t>(i), 0);
    const std::string original = valid_file(random);
    require(accept_and_check(original), "what we write is accepted");
    const std::string mutated = mutate(original, random);
    if (accept_and_check(mutated)) {
      ++accepted;
      require(read_from_disk(path, mutated), "accepted bytes are read as they are");
    } else if (const size_t shape = mutated.find("\"shape\":["); shape != std::string::npos) {
      fooled += careless_reader_is_fooled(mutated.substr(shape + 9, mutated.find(']', shape) - shape - 9));
    }
  }
  std::filesystem::remove(path);
  std::printf(
      "%d mutated files: %d accepted and read whole, %d refused, 0 crashes; %d of the refused fool unchecked "
      "arithmetic\n",
      files, accepted, files - accepted, fooled);
  require(accepted > 0 && accepted < files / 2, "mutations neither all harmless nor all fatal");
  require(fooled > 0, "the control attack was among them");
  return 0;
}
#endif
