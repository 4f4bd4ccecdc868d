#include "models/layers/packed_attention.h"

#include "models/layers/layer_test_tools.h"

namespace redline::models {
namespace {

using testing::expect_same_layer;
using testing::ragged_rows;
using testing::some_dropout;
using testing::wave;

struct AttentionCase {
  std::vector<int64_t> lengths;
  int64_t heads, head_dim;
  bool causal;
  double dropout;
};

const std::vector<AttentionCase> kAttentionCases = {
    {{1}, 1, 8, false, 0.0},          {{5, 1, 9}, 2, 8, true, 0.0},      {{5, 1, 9}, 2, 8, false, 0.0},
    {{48, 49, 97}, 2, 32, true, 0.0}, {{130, 3, 64}, 3, 24, false, 0.2}, {{130, 3, 64}, 3, 24, true, 0.2},
    {{7, 0, 2}, 1, 16, false, 0.0},   {{33, 31}, 1, 40, true, 0.5},
};

class PackedAttention : public ::testing::TestWithParam<torch::ScalarType> {};

TEST_P(PackedAttention, SelfAttentionEqualsThePaddedReference) {
  const double tolerance = GetParam() == torch::kFloat64 ? 1e-12 : 5e-6;
  for (const AttentionCase& c : kAttentionCases) {
    const Rows rows = ragged_rows(c.lengths);
    const AttentionOptions options{c.heads, c.causal, some_dropout(c.dropout)};
    const torch::Tensor qkv = wave({rows->num_rows(), 3 * c.heads * c.head_dim}, 0.1, GetParam()) * 1.5;
    SCOPED_TRACE(c.lengths.size() * 100 + static_cast<size_t>(c.head_dim));
    expect_same_layer([&](const auto& x) { return std::vector{packed_self_attention(x[0], rows, options)}; },
                      [&](const auto& x) {
                        const auto parts = x[0].chunk(3, 1);
                        return std::vector{packed_attention_plain(parts[0], parts[1], parts[2], rows, rows, options)};
                      },
                      {qkv}, tolerance);
  }
}

TEST_P(PackedAttention, LastQueryEqualsThePaddedReferenceAndTheFullAttentionsLastRow) {
  const double tolerance = GetParam() == torch::kFloat64 ? 1e-12 : 5e-6;
  const Rows rows = ragged_rows({60, 1, 17}), last = last_rows(*rows);
  for (double p : {0.0, 0.3}) {
    const AttentionOptions options{2, false, some_dropout(p)};
    const torch::Tensor q = wave({3, 32}, 0.2, GetParam()), kv = wave({78, 64}, 0.7, GetParam());
    expect_same_layer(
        [&](const auto& x) { return std::vector{packed_last_attention(x[0], x[1], last, rows, options)}; },
        [&](const auto& x) {
          const auto parts = x[1].chunk(2, 1);
          return std::vector{packed_attention_plain(x[0], parts[0], parts[1], last, rows, options)};
        },
        {q, kv}, tolerance);
    const torch::Tensor qkv = wave({78, 96}, 0.4, GetParam());
    const torch::Tensor pick = torch::tensor({59, 60, 77});
    const torch::Tensor full = packed_self_attention(qkv, rows, options).index_select(0, pick);
    const torch::Tensor pooled =
        packed_last_attention(qkv.index_select(0, pick).narrow(1, 0, 32), qkv.narrow(1, 32, 64), last, rows, options);
    EXPECT_LE(testing::largest_difference(pooled, full), tolerance);
  }
}

// Negative control: a key beyond a sequence's end, or a later key under a causal mask, must not matter; an earlier one
// must.
TEST_P(PackedAttention, SeesExactlyItsOwnPast) {
  const Rows rows = ragged_rows({4, 3});
  const AttentionOptions options{1, true, {}};
  const torch::Tensor qkv = wave({7, 24}, 0.3, GetParam());
  const torch::Tensor before = packed_self_attention(qkv, rows, options);
  torch::Tensor changed = qkv.clone();
  changed[2] += 3.0;
  const torch::Tensor moved = (packed_self_attention(changed, rows, options) - before).abs().sum(1);
  for (int64_t n : {0, 1, 4, 5, 6}) EXPECT_EQ(moved[n].item<double>(), 0.0) << n;
  for (int64_t n : {2, 3}) EXPECT_GT(moved[n].item<double>(), 1e-3) << n;
}

INSTANTIATE_TEST_SUITE_P(Types, PackedAttention, ::testing::Values(torch::kFloat32, torch::kFloat64));

TEST(PackedAttentionPlainPath, OddHeadSizesAndLowerPrecisionStillWork) {
  const Rows rows = ragged_rows({6, 4});
  const AttentionOptions options{2, true, some_dropout(0.1)};
  const torch::Tensor qkv = wave({10, 30}, 0.3, torch::kFloat32);
  EXPECT_EQ(packed_self_attention(qkv, rows, options).sizes(), (std::vector<int64_t>{10, 10}));
  const torch::Tensor half = packed_self_attention(qkv.to(torch::kBFloat16), rows, options);
  EXPECT_EQ(half.scalar_type(), torch::kFloat32);
  EXPECT_LE(testing::largest_difference(half, packed_self_attention(qkv, rows, options)), 2e-2);
}

}  // namespace
}  // namespace redline::models
