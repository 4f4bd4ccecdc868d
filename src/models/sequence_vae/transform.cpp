#include "models/sequence_vae/transform.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/log.h"

namespace redline::models::sequence_vae {

namespace {

// A whole-number column of any width, as int64; the error says what the column holds instead.
std::vector<int64_t> whole_numbers(const data::Array& array, const std::string& column) {
  const auto copy = [](auto span) { return std::vector<int64_t>(span.begin(), span.end()); };
  switch (array.dtype()) {
    case data::Dtype::I64:
      return copy(array.as<int64_t>());
    case data::Dtype::I32:
      return copy(array.as<int32_t>());
    case data::Dtype::U8:
      return copy(array.as<uint8_t>());
    default:
      throw DataError(
          fmt::format("column '{}' holds real numbers, but model.input tokens needs whole ones; for real values "
                      "set model.input values.",
                      column));
  }
}

std::vector<float> real_numbers(const data::Array& array) {
  const auto copy = [](auto span) {
    std::vector<float> out(span.size());
    std::transform(span.begin(), span.end(), out.begin(), [](auto value) { return static_cast<float>(value); });
    return out;
  };
  switch (array.dtype()) {
    case data::Dtype::F32:
      return copy(array.as<float>());
    case data::Dtype::F64:
      return copy(array.as<double>());
    case data::Dtype::I64:
      return copy(array.as<int64_t>());
    case data::Dtype::I32:
      return copy(array.as<int32_t>());
    default:
      return copy(array.as<uint8_t>());
  }
}

const data::Array& column_of(const data::Sample& sample, const std::string& column) {
  if (const data::Array* array = sample.find(column)) return *array;
  std::string names;
  for (const auto& field : sample.fields) names += (names.empty() ? "" : ", ") + field.first;
  throw DataError(fmt::format("no column '{}'; there are: {}. Set model.column.", column, names));
}

}  // namespace

// One line for all of them: which rows are cut is a matter of the limit, not of the row.
void SequenceTransform::say_cut(const data::Sample& sample, int64_t length, int64_t kept) const {
  if (length <= kept || said_cut_.exchange(true)) return;
  log_info(fmt::format(
      "Sequences of more than {} steps are cut (model.max_sequence_length {}{}); the first is row {} with {}.", kept,
      options_.max_sequence_length, options_.num_ends() > 0 ? ", start and end included" : "", sample.id, length));
}

void SequenceTransform::tokens(data::Sample& sample) const {
  const std::vector<int64_t> ids = whole_numbers(column_of(sample, options_.column), options_.column);
  if (ids.empty()) throw DataError("an empty sequence");
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= options_.vocab_size)
      throw DataError(fmt::format("token {} at position {} is outside 0 to {} (model.vocab_size {})", ids[i], i,
                                  options_.vocab_size - 1, options_.vocab_size));
  const auto kept =
      std::min<int64_t>(static_cast<int64_t>(ids.size()), options_.max_sequence_length - options_.num_ends());
  say_cut(sample, static_cast<int64_t>(ids.size()), kept);
  const int64_t extra = options_.add_start_end ? 1 : 0;
  if (kept + 2 * extra < 2) throw DataError("a sequence of one token: nothing to predict without start and end");
  data::Array out = data::Array::empty(data::Dtype::I64, {kept + 2 * extra});
  const auto to = out.as<int64_t>();
  std::copy_n(ids.begin(), kept, to.begin() + extra);
  if (options_.add_start_end) {
    to.front() = options_.start_id;
    to.back() = options_.end_id;
  }
  sample.set("tokens", out);
}

void SequenceTransform::vectors(data::Sample& sample, const std::string& column, const std::string& name) const {
  const std::vector<float> values = real_numbers(column_of(sample, column));
  const auto width = static_cast<size_t>(options_.input_dim);
  if (values.empty()) throw DataError("an empty sequence");
  if (values.size() % width != 0)
    throw DataError(fmt::format("{} numbers in column '{}' are no whole number of steps of model.input_dim {}",
                                values.size(), column, width));
  for (float value : values)
    if (!std::isfinite(value)) throw DataError(fmt::format("column '{}' has a value that is not finite", column));
  const auto steps = std::min<int64_t>(static_cast<int64_t>(values.size() / width),
                                       options_.max_sequence_length - options_.num_ends());
  say_cut(sample, static_cast<int64_t>(values.size() / width), steps);
  data::Array out = data::Array::empty(data::Dtype::F32, {steps, options_.input_dim});
  std::copy_n(values.begin(), out.numel(), out.as<float>().begin());
  sample.set(name, out);
}

void SequenceTransform::apply(data::Sample& sample, const data::DrawKey&) const {
  if (options_.input == "values") return vectors(sample, options_.column, "values");
  tokens(sample);
  if (options_.input != "embeddings") return;
  vectors(sample, options_.embedding_column, "embeddings");
  // One vector per token; start and end get zeros.
  const data::Array given = *sample.find("embeddings");
  const int64_t extra = options_.add_start_end ? 1 : 0, steps = sample.find("tokens")->numel();
  if (given.shape()[0] != steps - 2 * extra)
    throw DataError(fmt::format("{} embeddings for {} tokens", given.shape()[0], steps - 2 * extra));
  data::Array out = data::Array::zeros(data::Dtype::F32, {steps, options_.input_dim});
  std::copy_n(given.as<float>().begin(), given.numel(), out.as<float>().begin() + extra * options_.input_dim);
  sample.set("embeddings", out);
}

std::string SequenceTransform::fingerprint() const {
  const Options& o = options_;
  return fmt::format("sequence input={} column={} embeddings={} vocab={} dim={} ends={}:{}:{} max={}", o.input,
                     o.column, o.embedding_column, o.vocab_size, o.input_dim, o.add_start_end, o.start_id, o.end_id,
                     o.max_sequence_length);
}

}  // namespace redline::models::sequence_vae
