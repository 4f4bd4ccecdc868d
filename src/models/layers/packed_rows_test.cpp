#include "models/layers/layer_test_tools.h"
#include "task/context.h"

namespace redline::models {
namespace {

using testing::ragged_rows;
using testing::some_dropout;
using testing::wave;

TEST(PackedRows, KnowsWhereEachPositionCameFrom) {
  const Rows rows = ragged_rows({3, 0, 2});
  EXPECT_EQ(rows->offsets, (std::vector<int64_t>{0, 3, 3, 5}));
  EXPECT_EQ(rows->sequence, (std::vector<int32_t>{0, 0, 0, 2, 2}));
  EXPECT_EQ(rows->time, (std::vector<int32_t>{0, 1, 2, 0, 1}));
  EXPECT_EQ(rows->longest(), 3);
  EXPECT_EQ(rows->sample_key(4), 1014u);
}

TEST(PackedRows, PackThenUnpackKeepsRealPositionsAndZeroesPadding) {
  const Rows rows = ragged_rows({2, 4, 1});
  const torch::Tensor padded = wave({3, 5, 2}, 0.5, torch::kFloat32);
  const torch::Tensor back = unpack(pack(padded, *rows), *rows);
  ASSERT_EQ(back.sizes(), (std::vector<int64_t>{3, 4, 2}));
  for (int64_t b = 0; b < 3; ++b)
    for (int64_t t = 0; t < 4; ++t)
      EXPECT_TRUE(torch::equal(back[b][t], t < rows->length(b) ? padded[b][t] : torch::zeros({2}))) << b << " " << t;
}

TEST(PackedRows, LastRowsKeepTheirTime) {
  const Rows last = last_rows(*ragged_rows({3, 1, 2}));
  EXPECT_EQ(last->time, (std::vector<int32_t>{2, 0, 1}));
  EXPECT_EQ(last->offsets, (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST(RowDropout, VectorAndPlainMasksAreEqual) {
  const DropoutDraw dropout = some_dropout(0.3);
  for (int64_t count : {1, 8, 31, 32, 33, 100, 256}) {
    std::vector<float> fast(static_cast<size_t>(count + 32)), plain(static_cast<size_t>(count));
    fill_mask(dropout, 9, 1024, count, fast.data());
    fill_mask_plain(dropout, 9, 1024, count, plain.data());
    fast.resize(static_cast<size_t>(count));
    EXPECT_EQ(fast, plain) << count;
  }
}

// The padded tensor through the runtime's dropout and the packed rows through ours drop the same elements.
TEST(RowDropout, EqualsTheContextsDropoutOfThePaddedTensor) {
  const Rows rows = ragged_rows({5, 2, 7});
  for (int64_t width : {8, 12, 64}) {
    task::Context ctx(1, 2, true, rows->sample_ids);
    const torch::Tensor padded = torch::ones({3, 7, width});
    const torch::Tensor expected = pack(ctx.dropout(padded, 0.25, "here"), *rows);
    EXPECT_TRUE(torch::equal(mask_tensor(ctx.dropout_draw(0.25, "here"), *rows, width), expected)) << width;
    EXPECT_FALSE(torch::equal(mask_tensor(ctx.dropout_draw(0.25, "elsewhere"), *rows, width), expected));
  }
  task::Context ctx(1, 2, true, rows->sample_ids);
  const torch::Tensor weights = ctx.dropout(torch::ones({3, 2, 7, 7}), 0.25, "weights", {2, 3});
  std::vector<float> mask(32);
  for (int64_t h = 0; h < 2; ++h) {
    fill_mask(ctx.dropout_draw(0.25, "weights"), static_cast<uint64_t>(rows->sample_ids[1]), attention_element(h, 4), 7,
              mask.data());
    for (int64_t j = 0; j < 7; ++j)
      EXPECT_EQ(mask[static_cast<size_t>(j)], weights[1][h][4][j].item<float>()) << h << " " << j;
  }
}

TEST(RowDropout, IsOffOutsideTraining) {
  const std::vector<int64_t> ids = {1};
  EXPECT_FALSE(task::Context(1, 1, false, ids).dropout_draw(0.5, "x").active());
  EXPECT_FALSE(task::Context(1, 1, true, ids).dropout_draw(0.0, "x").active());
}

}  // namespace
}  // namespace redline::models
