// Integer sequences a VAE can learn: each class is a Markov chain of its own, and a latent "tempo" per sequence makes
// tokens linger; so a good code holds the class and the tempo. Written as Parquet: tokens (list of int32), label,
// length, id.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/writer.h>
#include <parquet/exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>

#include "core/error.h"
#include "core/file_ops.h"
#include "data/synth/synth_parts.h"

namespace redline::data::synth {

namespace {

constexpr int kFirstToken = 3;      // after padding, start and end
constexpr int kLikely = 4;          // successors of a token that a class prefers
constexpr uint32_t kStray = 13107;  // out of 65536: one token in five is any token

// The chain of one class: four likely successors per token, the first much likelier than the last.
struct ClassChain {
  std::vector<std::array<int32_t, kLikely>> next;
  std::vector<int32_t> starts;
};

std::vector<ClassChain> make_chains(const SynthConfig& config) {
  std::vector<ClassChain> chains(static_cast<size_t>(config.num_classes));
  for (size_t c = 0; c < chains.size(); ++c) {
    KeyedStream draw = stream(config.seed, 0, c, Draw::Chain);
    const auto any = [&] { return static_cast<int32_t>(draw.uniform_int(kFirstToken, config.vocab_size - 1)); };
    chains[c].next.resize(static_cast<size_t>(config.vocab_size));
    for (auto& successors : chains[c].next)
      for (auto& token : successors) token = any();
    for (int i = 0; i < kLikely; ++i) chains[c].starts.push_back(any());
  }
  return chains;
}

struct SequenceTable {
  std::vector<int32_t> offsets{0}, tokens, lengths;
  std::vector<int64_t> labels, ids;
};

void append_sequence(const SynthConfig& config, const std::vector<ClassChain>& chains, Part part, int64_t item,
                     SequenceTable& table) {
  KeyedStream length_draw = stream(config.seed, static_cast<uint64_t>(part), static_cast<uint64_t>(item), Draw::Length);
  const double wanted = log_normal(length_draw, config.median_length, config.length_sigma,
                                   static_cast<double>(config.min_length), static_cast<double>(config.max_length));
  const int64_t length = std::llround(wanted);
  const int64_t label = length_draw.uniform_int(0, config.num_classes - 1);
  const auto linger = static_cast<uint32_t>(length_draw.uniform(0.0, 0.45) * 65536);  // the tempo
  const ClassChain& chain = chains[static_cast<size_t>(label)];
  KeyedStream draw = stream(config.seed, static_cast<uint64_t>(part), static_cast<uint64_t>(item), Draw::Tokens);
  int32_t token = chain.starts[static_cast<size_t>(draw.next_u32() % kLikely)];
  const auto range = static_cast<uint32_t>(config.vocab_size - kFirstToken);
  for (int64_t i = 0; i < length; ++i) {
    table.tokens.push_back(token);
    const uint32_t bits = draw.next_u32(), low = bits & 0xFFFF, high = bits >> 16;
    if (low < linger) continue;
    if (high < kStray) {
      token = kFirstToken + static_cast<int32_t>((uint64_t{bits} * 2654435761u >> 16) % range);
    } else {
      static constexpr size_t kChoice[8] = {0, 0, 0, 0, 1, 1, 2, 3};
      token = chain.next[static_cast<size_t>(token)][kChoice[high & 7]];
    }
  }
  table.offsets.push_back(static_cast<int32_t>(table.tokens.size()));
  table.lengths.push_back(static_cast<int32_t>(length));
  table.labels.push_back(label);
  table.ids.push_back(item);
}

template <class T>
std::shared_ptr<arrow::Buffer> borrow(const std::vector<T>& values) {
  return std::make_shared<arrow::Buffer>(reinterpret_cast<const uint8_t*>(values.data()),
                                         static_cast<int64_t>(values.size() * sizeof(T)));
}

void write_table(const SynthConfig& config, const SequenceTable& table, const std::filesystem::path& path) {
  const auto rows = static_cast<int64_t>(table.labels.size());
  const auto tokens =
      std::make_shared<arrow::Int32Array>(static_cast<int64_t>(table.tokens.size()), borrow(table.tokens));
  const auto lists =
      std::make_shared<arrow::ListArray>(arrow::list(arrow::int32()), rows, borrow(table.offsets), tokens);
  const auto schema =
      arrow::schema({arrow::field("id", arrow::int64()), arrow::field("tokens", arrow::list(arrow::int32())),
                     arrow::field("length", arrow::int32()), arrow::field("label", arrow::int64())});
  const auto arrow_table =
      arrow::Table::Make(schema, {std::make_shared<arrow::Int64Array>(rows, borrow(table.ids)), lists,
                                  std::make_shared<arrow::Int32Array>(rows, borrow(table.lengths)),
                                  std::make_shared<arrow::Int64Array>(rows, borrow(table.labels))});
  const auto properties =
      parquet::WriterProperties::Builder().compression(arrow::Compression::SNAPPY)->created_by("redline")->build();
  auto file = arrow::io::FileOutputStream::Open(path.string());
  arrow::Status status = file.status();
  if (status.ok()) {
    status = parquet::arrow::WriteTable(*arrow_table, arrow::default_memory_pool(), *file, config.rows_per_group,
                                        properties);
    if (status.ok()) status = (*file)->Close();
  }
  if (!status.ok()) throw DiskError("'" + path.string() + "' cannot be written: " + status.ToString() + ".");
}

std::filesystem::path make_part(const SynthConfig& config, const std::vector<ClassChain>& chains, Part part,
                                int64_t count, const std::filesystem::path& folder, SynthResult& result) {
  posix_file_ops().make_directory(folder);
  // Offsets are 32-bit: a file may not hold 2^31 tokens.
  const int64_t rows_per_file = std::min(config.rows_per_file, int64_t{INT32_MAX} / config.max_length);
  const int64_t num_files = (count + rows_per_file - 1) / rows_per_file;
  std::atomic<uint64_t> bytes = 0;
  for_each_item(num_files, config.num_threads, [&](int64_t number) {
    SequenceTable table;
    const int64_t end = std::min(count, (number + 1) * rows_per_file);
    for (int64_t item = number * rows_per_file; item < end; ++item) append_sequence(config, chains, part, item, table);
    std::array<char, 32> name{};
    std::snprintf(name.data(), name.size(), "part-%05lld.parquet", static_cast<long long>(number));
    write_table(config, table, folder / name.data());
    bytes += std::filesystem::file_size(folder / name.data());
  });
  result.num_items += count;
  result.num_bytes += bytes;
  return folder;
}

}  // namespace

SynthResult make_sequences(const SynthConfig& config, const std::filesystem::path& out) {
  const auto chains = make_chains(config);
  SynthResult result;
  result.train = make_part(config, chains, Part::Train, config.num, out / "train", result);
  if (config.num_validation > 0)
    result.validation = make_part(config, chains, Part::Validation, config.num_validation, out / "validation", result);
  return result;
}

}  // namespace redline::data::synth
