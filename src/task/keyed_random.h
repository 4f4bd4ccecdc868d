// The draws behind task::Context: Philox4x32-10 blocks addressed by (operation key, sample, block of elements), in
// bulk. A block's address never holds a row number, a thread or a batch size, so any split of a batch draws the same
// numbers.
//
// Every vector path has a plain twin (kPlain) with bit-equal results; keyed_random_test.cpp holds them against each
// other.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/philox.h"

namespace redline::task {

// The Philox key of one operation in one step; samples and elements go into the counter.
PhiloxKey operation_key(uint64_t seed, int64_t step, std::string_view operation);

// Which elements an operation's dropout drops (those whose 16-bit draw is below the threshold) and what the others are
// multiplied by. Every kernel that drops, here and in models, reads this one.
struct DropoutDraw {
  PhiloxKey key;
  uint32_t threshold = 0;  // 0..65535; 0 = nothing is dropped
  float scale = 1.0f;
  bool active() const { return threshold != 0; }
};
// p in [0, 1); 65536 p, rounded, at most 65535.
uint32_t dropout_threshold(double p);
DropoutDraw dropout_draw(PhiloxKey key, double p);

enum class RandomPath { kPlain, kVector };
// kVector where this processor has AVX2, else kPlain; both give the same bits.
RandomPath best_random_path();

// Words of `num_blocks` consecutive blocks, four per block, in order.
void philox_words(PhiloxKey key, uint64_t sample, uint64_t first_block, int64_t num_blocks, uint32_t* words,
                  RandomPath path);

// Elements [first, first + count) of a sample. first must be a multiple of 4. Uniforms have 24 bits and lie in [0, 1).
// Normals come in Box-Muller pairs of elements (2i, 2i+1); each is a function of its own block only, computed in fixed
// groups so that a vector remainder cannot round differently.
void uniform_run(PhiloxKey key, uint64_t sample, uint64_t first, int64_t count, float* out, RandomPath path);
void normal_run(PhiloxKey key, uint64_t sample, uint64_t first, int64_t count, float* out, RandomPath path);

// How the elements of one sample map to draws. A dimension whose extent depends on padding gets a fixed stride in the
// key, so the draw of an element does not depend on how long its batch's longest sample is. Runs are stretches that are
// contiguous both in memory and in the key; each begins at a multiple of 8.
class KeyLayout {
 public:
  // `shape` is [B, ...]; padded_dims index into it (negative counts from the end); throws InternalError when an extent
  // exceeds kPaddedExtent or a dimension does not exist.
  KeyLayout(const std::vector<int64_t>& shape, const std::vector<int64_t>& padded_dims);
  static constexpr int64_t kPaddedExtent = int64_t{1} << 21;

  int64_t rows() const { return rows_; }
  int64_t runs_per_row() const { return runs_per_row_; }
  int64_t run_length() const { return run_length_; }
  uint64_t run_key(int64_t run) const;  // key of the run's first element within the sample

 private:
  int64_t rows_ = 0, runs_per_row_ = 1, run_length_ = 1;
  std::vector<int64_t> outer_extents_;
  std::vector<uint64_t> outer_strides_;
};

// Key of element (head, query, 0) of a sample in [B, H, T, T] with padded_dims {2, 3}: attention weights.
inline uint64_t attention_element(int64_t head, int64_t query) {
  return static_cast<uint64_t>((head * KeyLayout::kPaddedExtent + query) * KeyLayout::kPaddedExtent);
}

}  // namespace redline::task
