#include "models/sequence_vae/transform.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace redline::models::sequence_vae {
namespace {

template <class T>
data::Array array_of(data::Dtype dtype, const std::vector<T>& values) {
  data::Array out = data::Array::empty(dtype, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), out.as<T>().begin());
  return out;
}
std::vector<int64_t> transformed(const Options& options, const data::Array& tokens) {
  data::Sample sample;
  sample.set("tokens", tokens);
  SequenceTransform(options).apply(sample, {});
  const auto out = sample.find("tokens")->as<int64_t>();
  return {out.begin(), out.end()};
}
std::string transform_refusal(const Options& options, data::Sample sample) {
  try {
    SequenceTransform(options).apply(sample, {});
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}
data::Sample sample_with(const std::string& name, const data::Array& array) {
  data::Sample sample;
  sample.set(name, array);
  return sample;
}

TEST(SequenceTransform, PutsStartAndEndAroundEveryIntegerType) {
  Options options;
  const std::vector<int64_t> expected = {1, 7, 8, 9, 2};
  EXPECT_EQ(transformed(options, array_of<int64_t>(data::Dtype::I64, {7, 8, 9})), expected);
  EXPECT_EQ(transformed(options, array_of<int32_t>(data::Dtype::I32, {7, 8, 9})), expected);
  EXPECT_EQ(transformed(options, array_of<uint8_t>(data::Dtype::U8, {7, 8, 9})), expected);
}

TEST(SequenceTransform, CutsLongSequencesBeforeAddingTheEnd) {
  Options options;
  options.max_sequence_length = 4;
  EXPECT_EQ(transformed(options, array_of<int64_t>(data::Dtype::I64, {7, 8, 9})), (std::vector<int64_t>{1, 7, 8, 2}));
  options.add_start_end = false;
  options.max_sequence_length = 2;
  EXPECT_EQ(transformed(options, array_of<int64_t>(data::Dtype::I64, {7, 8, 9})), (std::vector<int64_t>{7, 8}));
}

TEST(SequenceTransform, LeavesTheStoredArrayAlone) {
  const data::Array stored = array_of<int64_t>(data::Dtype::I64, {7, 8});
  transformed({}, stored);
  EXPECT_EQ(stored.as<int64_t>()[0], 7);
  EXPECT_EQ(stored.numel(), 2);
}

TEST(SequenceTransform, RefusesWhatItCannotUseInWords) {
  Options options;
  options.vocab_size = 10;
  using ::testing::HasSubstr;
  EXPECT_THAT(transform_refusal(options, sample_with("tokens", array_of<int64_t>(data::Dtype::I64, {3, 10}))),
              HasSubstr("token 10 at position 1 is outside 0 to 9"));
  EXPECT_THAT(transform_refusal(options, sample_with("tokens", array_of<int64_t>(data::Dtype::I64, {-1}))),
              HasSubstr("token -1 at position 0"));
  EXPECT_THAT(transform_refusal(options, sample_with("tokens", array_of<int64_t>(data::Dtype::I64, {}))),
              HasSubstr("empty sequence"));
  EXPECT_THAT(transform_refusal(options, sample_with("tokens", array_of<float>(data::Dtype::F32, {1.0f}))),
              HasSubstr("model.input values"));
  EXPECT_THAT(transform_refusal(options, sample_with("words", array_of<int64_t>(data::Dtype::I64, {1}))),
              HasSubstr("no column 'tokens'; there are: words"));
  options.add_start_end = false;
  EXPECT_THAT(transform_refusal(options, sample_with("tokens", array_of<int64_t>(data::Dtype::I64, {1}))),
              HasSubstr("one token"));
}

TEST(SequenceTransform, ShapesRealValuesIntoSteps) {
  Options options;
  options.input = "values";
  options.column = "x";
  options.input_dim = 2;
  options.max_sequence_length = 2;
  data::Sample sample = sample_with("x", array_of<double>(data::Dtype::F64, {1, 2, 3, 4, 5, 6}));
  SequenceTransform(options).apply(sample, {});
  EXPECT_EQ(sample.find("values")->shape(), (data::Shape{2, 2}));
  EXPECT_EQ(sample.find("values")->as<float>()[3], 4.0f);
  EXPECT_THAT(transform_refusal(options, sample_with("x", array_of<float>(data::Dtype::F32, {1, 2, 3}))),
              ::testing::HasSubstr("3 numbers"));
  EXPECT_THAT(transform_refusal(options, sample_with("x", array_of<float>(data::Dtype::F32, {1, NAN}))),
              ::testing::HasSubstr("not finite"));
}

TEST(SequenceTransform, EmbeddingsGetZerosForStartAndEnd) {
  Options options;
  options.input = "embeddings";
  options.input_dim = 2;
  data::Sample sample = sample_with("tokens", array_of<int64_t>(data::Dtype::I64, {5, 6}));
  sample.set("embeddings", array_of<float>(data::Dtype::F32, {1, 2, 3, 4}));
  SequenceTransform(options).apply(sample, {});
  const auto values = sample.find("embeddings")->as<float>();
  EXPECT_EQ(std::vector<float>(values.begin(), values.end()), (std::vector<float>{0, 0, 1, 2, 3, 4, 0, 0}));
  data::Sample wrong = sample_with("tokens", array_of<int64_t>(data::Dtype::I64, {5, 6, 7}));
  wrong.set("embeddings", array_of<float>(data::Dtype::F32, {1, 2, 3, 4}));
  EXPECT_THAT(transform_refusal(options, wrong), ::testing::HasSubstr("2 embeddings for 3 tokens"));
}

}  // namespace
}  // namespace redline::models::sequence_vae
