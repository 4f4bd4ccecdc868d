#include "task/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace redline::task {
namespace {

using ::testing::HasSubstr;

BatchSchema example_schema() {
  return {{{"audio", torch::kFloat32, {-2, -1}, false, "waveform"},
           {"length", torch::kInt64, {-2}, false, ""},
           {"mask", torch::kBool, {-2, 80, -1}, true, ""}}};
}

Batch example_batch() {
  Batch batch;
  batch.tensors["audio"] = torch::zeros({3, 17});
  batch.tensors["length"] = torch::zeros({3}, torch::kInt64);
  batch.sample_ids = {5, 6, 7};
  return batch;
}

std::string refusal(const Batch& batch) {
  try {
    check_batch(example_schema(), batch);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST(Batch, AcceptsWhatTheSchemaDescribes) {
  EXPECT_EQ(refusal(example_batch()), "");
  Batch with_optional = example_batch();
  with_optional.tensors["mask"] = torch::zeros({3, 80, 2}, torch::kBool);
  EXPECT_EQ(refusal(with_optional), "");
}

TEST(Batch, NamesTheTensorThatIsWrong) {
  Batch batch = example_batch();
  batch.tensors.erase("length");
  EXPECT_THAT(refusal(batch), HasSubstr("lacks the tensor 'length'"));

  batch = example_batch();
  batch.tensors["audio"] = batch.tensors["audio"].to(torch::kFloat64);
  EXPECT_THAT(refusal(batch), HasSubstr("'audio' should be Float [B, any] with B = 3, but is Double [3, 17]"));

  batch = example_batch();
  batch.tensors["length"] = torch::zeros({2}, torch::kInt64);
  EXPECT_THAT(refusal(batch), HasSubstr("dimension 0 is not the batch's size"));

  batch = example_batch();
  batch.tensors["mask"] = torch::zeros({3, 79, 2}, torch::kBool);
  EXPECT_THAT(refusal(batch), HasSubstr("dimension 1 differs"));

  batch = example_batch();
  batch.tensors["audio"] = torch::zeros({3});
  EXPECT_THAT(refusal(batch), HasSubstr("number of dimensions"));
}

TEST(Batch, WithoutSampleIdsTheTensorsAgreeAmongThemselves) {
  Batch batch = example_batch();
  batch.sample_ids.clear();
  EXPECT_EQ(refusal(batch), "");
  batch.tensors["length"] = torch::zeros({4}, torch::kInt64);
  EXPECT_THAT(refusal(batch), HasSubstr("'length'"));
}

TEST(Batch, AtListsWhatIsThere) {
  const Batch batch = example_batch();
  EXPECT_EQ(batch.at("audio").size(1), 17);
  try {
    batch.at("image");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no tensor 'image'; it has 'audio', 'length'"));
  }
}

}  // namespace
}  // namespace redline::task
