#include "data/workers/collate.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "data/testing/engine.h"

namespace redline::data {
namespace {

namespace te = testing_engine;

Batch collated(const std::vector<Sample>& samples, const CollateSpec& spec) {
  std::vector<const Sample*> rows;
  for (const Sample& sample : samples) rows.push_back(&sample);
  Batch batch;
  collate(rows, spec, heap_arrays(), batch);
  return batch;
}

TEST(Collate, PadsToTheLongestAndGivesLengths) {
  CollateSpec spec = te::numbered_collate();
  spec.fields[0].pad_value = -1.0;
  const Batch batch = collated({te::numbered_sample(5, 2), te::numbered_sample(6, 3)}, spec);
  EXPECT_EQ(batch.find("x")->shape(), (Shape{2, 3}));
  EXPECT_EQ(std::vector<float>(batch.find("x")->as<float>().begin(), batch.find("x")->as<float>().end()),
            (std::vector<float>{5, 6, -1, 6, 7, 8}));
  EXPECT_EQ(batch.find("x_len")->as<int64_t>()[0], 2);
  EXPECT_EQ(batch.find("label")->shape(), (Shape{2}));
  EXPECT_EQ(batch.find("label")->as<int64_t>()[1], 6);
  EXPECT_EQ(batch.items, 5);
  EXPECT_EQ(batch.padded_items, 6);
}

// Six cameras and their matrices in one sample: only the pictures are laid out, each for itself.
TEST(Collate, PicturesOfARunThatIsChannelsLast) {
  std::vector<Sample> samples(2);
  for (size_t i = 0; i < 2; ++i) {
    Array cameras = Array::empty(Dtype::F32, {6, 3, 2, 4});
    std::iota(cameras.as<float>().begin(), cameras.as<float>().end(), static_cast<float>(1000 * i));
    samples[i].set("cameras", cameras);
    samples[i].set("matrices", Array::zeros(Dtype::F32, {6, 4, 4}));
  }
  CollateSpec spec;
  spec.fields.push_back({"cameras", 0.0, 1, "", false, true});
  spec.fields.push_back({"matrices", 0.0, 1, "", false});
  const Batch plain = collated(samples, spec);
  EXPECT_FALSE(plain.find("cameras")->channels_last());
  spec.channels_last = true;
  const Batch laid_out = collated(samples, spec);
  const Array& cameras = *laid_out.find("cameras");
  EXPECT_TRUE(cameras.channels_last());
  EXPECT_FALSE(laid_out.find("matrices")->channels_last());
  EXPECT_EQ(cameras.shape(), (Shape{2, 6, 3, 2, 4}));
  const auto from = plain.find("cameras")->as<float>(), to = cameras.as<float>();
  for (size_t picture = 0; picture < 12; ++picture)
    for (size_t c = 0; c < 3; ++c)
      for (size_t pixel = 0; pixel < 8; ++pixel)
        ASSERT_EQ(to[picture * 24 + pixel * 3 + c], from[picture * 24 + c * 8 + pixel]);
}

// A batch may call a field otherwise than its samples do.
TEST(Collate, AFieldUnderTheBatchsOwnName) {
  std::vector<Sample> samples(2);
  for (size_t i = 0; i < 2; ++i) {
    Array label = Array::empty(Dtype::I64, {});
    label.as<int64_t>()[0] = static_cast<int64_t>(i + 5);
    samples[i].set("label", label);
  }
  CollateSpec spec;
  spec.fields.push_back({"labels", 0.0, 1, "", false, false, "label"});
  const Batch batch = collated(samples, spec);
  EXPECT_EQ(batch.find("label"), nullptr);
  EXPECT_EQ(batch.find("labels")->as<int64_t>()[1], 6);
  spec.fields[0].sample_name = "class";
  EXPECT_THROW(collated(samples, spec), DataError);
}

// Long rows go another way (data/files/stream_copy.h): every byte is where the short way would put it.
TEST(Collate, LongRowsAreCopiedAndPaddedExactly) {
  std::vector<Sample> samples(3);
  const int64_t lengths[] = {40'001, 17, 65'537};
  for (size_t i = 0; i < 3; ++i) {
    Array values = Array::empty(Dtype::F32, {lengths[i]});
    for (int64_t t = 0; t < lengths[i]; ++t)
      values.as<float>()[static_cast<size_t>(t)] = static_cast<float>(t) + 0.5f * static_cast<float>(i + 1);
    samples[i].set("x", values);
  }
  CollateSpec spec;
  spec.fields.push_back({"x", 0.0, 1, "x_len", false});
  const Sample* rows[] = {&samples[0], &samples[1], &samples[2]};
  Batch batch;
  collate(rows, spec, heap_arrays(), batch);
  const Array& x = *batch.find("x");
  ASSERT_EQ(x.shape(), (Shape{3, 65'537}));
  for (size_t i = 0; i < 3; ++i) {
    for (int64_t t = 0; t < 65'537; ++t) {
      const float expected = t < lengths[i] ? static_cast<float>(t) + 0.5f * static_cast<float>(i + 1) : 0.0f;
      ASSERT_EQ(x.as<float>()[i * 65'537 + static_cast<size_t>(t)], expected) << i << " " << t;
    }
  }
}

TEST(Collate, RoundsUpToAMultiple) {
  CollateSpec spec = te::numbered_collate();
  spec.fields[0].pad_to_multiple = 16;
  EXPECT_EQ(collated({te::numbered_sample(5, 2), te::numbered_sample(6, 17)}, spec).find("x")->shape(), (Shape{2, 32}));
  EXPECT_EQ(collated({te::numbered_sample(5, 16)}, spec).find("x")->shape(), (Shape{1, 16}));
}

TEST(Collate, KeepsInnerDimensionsAndTypes) {
  std::vector<Sample> samples(2);
  samples[0].set("f", Array::zeros(Dtype::I32, {1, 4}));
  samples[1].set("f", Array::zeros(Dtype::I32, {2, 4}));
  for (int32_t& v : samples[1].find("f")->as<int32_t>()) v = 9;
  CollateSpec spec;
  spec.fields.push_back({"f", 7.0, 1, "", false});
  const Batch batch = collated(samples, spec);
  EXPECT_EQ(batch.find("f")->shape(), (Shape{2, 2, 4}));
  EXPECT_EQ(batch.find("f")->dtype(), Dtype::I32);
  EXPECT_EQ(batch.find("f")->as<int32_t>()[4], 7);
  EXPECT_EQ(batch.find("f")->as<int32_t>()[8], 9);
  EXPECT_EQ(batch.items, 2) << "no counted field: rows count";
}

TEST(Collate, NamesTheSampleThatDoesNotFit) {
  std::vector<Sample> samples{te::numbered_sample(5, 2), te::numbered_sample(6, 3)};
  CollateSpec spec;
  spec.fields.push_back({"y", 0.0, 1, "", false});
  try {
    collated(samples, spec);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("Sample 5 has no field 'y' (it has: x, label)"), std::string::npos)
        << error.what();
  }
  samples[1].set("x", Array::zeros(Dtype::F64, {3}));
  EXPECT_THROW(collated(samples, te::numbered_collate()), DataError);
  samples[1].set("x", Array::zeros(Dtype::F32, {3, 2}));
  EXPECT_THROW(collated(samples, te::numbered_collate()), DataError);
}

TEST(Collate, OptionalFieldsAreAllOrNone) {
  std::vector<Sample> samples{te::numbered_sample(5, 2), te::numbered_sample(6, 3)};
  CollateSpec spec;
  spec.fields.push_back({"y", 0.0, 1, "", true});
  EXPECT_TRUE(collated(samples, spec).fields.empty());
  samples[1].set("y", Array::zeros(Dtype::F32, {}));
  EXPECT_THROW(collated(samples, spec), DataError);
  samples[0].set("y", Array::zeros(Dtype::F32, {}));
  EXPECT_NE(collated(samples, spec).find("y"), nullptr);
  samples[1].fields.pop_back();
  EXPECT_THROW(collated(samples, spec), DataError);
}

TEST(Collate, WithoutRowsThereAreNoFields) {
  const Batch batch = collated({}, te::numbered_collate());
  EXPECT_TRUE(batch.fields.empty());
  EXPECT_EQ(batch.items, 0);
}

}  // namespace
}  // namespace redline::data
