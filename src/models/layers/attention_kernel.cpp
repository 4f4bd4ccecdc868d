// The work of one (sequence, head): copy its rows as the products want them (attention_products.h), then tile by tile:
// scores, softmax, dropout, products. See attention_kernel.h for why nothing is rescaled.
#include "models/layers/attention_kernel.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <vector>

#include "models/layers/attention_products.h"
#include "models/layers/simd.h"
#include "models/layers/softmax_rows.h"

namespace redline::models {

namespace {

constexpr int64_t kQueryTile = 48;  // a multiple of the register tile; 48 x 1,000 floats are 192 KiB

// Scratch of one thread, sized for the longest sequence. `width` is the padded row of scores.
template <class Products>
struct AttentionScratch {
  using T = typename Products::Number;
  AttentionScratch(int64_t longest_keys, int64_t dim, bool backward, bool dropout)
      : width(simd::round_up(longest_keys, 32)),
        products(width, dim, backward),
        queries(static_cast<size_t>(kQueryTile * dim)),
        scores(static_cast<size_t>(kQueryTile * width)),
        mask(static_cast<size_t>(dropout ? width : 0)),
        tile_out(static_cast<size_t>(kQueryTile * dim)) {
    if (!backward) return;
    grad_scores.resize(static_cast<size_t>(kQueryTile * width));
    if (dropout) dropped.resize(static_cast<size_t>(kQueryTile * width));
    tile_grad.resize(static_cast<size_t>(kQueryTile * dim));
    grad_keys.resize(static_cast<size_t>(width * dim));
    grad_values.resize(static_cast<size_t>(width * dim));
  }
  int64_t width;
  Products products;
  std::vector<T> queries, scores;
  std::vector<float> mask;
  std::vector<T> tile_out, grad_scores, dropped, tile_grad, grad_keys, grad_values;
};

template <class T>
void copy_rows(const T* from, int64_t stride, int64_t rows, int64_t dim, T scale, T* to) {
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t d = 0; d < dim; ++d) to[n * dim + d] = from[n * stride + d] * scale;
}

// One sequence and head: where its rows are and how many keys each tile sees.
struct HeadTask {
  int64_t head, sequence, first_query, num_queries, first_key, num_keys;
  uint64_t sample;
};

HeadTask head_task(const AttentionShape& shape, int64_t index) {
  const int64_t num_sequences = shape.queries->num_sequences();
  HeadTask task;
  task.head = index / num_sequences;  // heads outside: each thread gets some heads of every sequence, so equal work
  task.sequence = index % num_sequences;
  const auto b = static_cast<size_t>(task.sequence);
  task.first_query = shape.queries->offsets[b];
  task.num_queries = shape.queries->length(task.sequence);
  task.first_key = shape.keys->offsets[b];
  task.num_keys = shape.keys->length(task.sequence);
  task.sample = static_cast<uint64_t>(shape.queries->sample_ids[b]);
  return task;
}

int64_t visible_keys(const AttentionShape& shape, const HeadTask& task, int64_t query) {
  if (!shape.causal) return task.num_keys;
  return shape.queries->time[static_cast<size_t>(task.first_query + query)] + 1;
}

template <class Products>
struct HeadForward {
  using T = typename Products::Number;
  const AttentionShape& shape;
  HeadRows<const T> q, k, v;
  HeadRows<T> out;
  T* log_sum;

  void run(const HeadTask& task, AttentionScratch<Products>& s) const {
    const int64_t dim = shape.head_dim, column = task.head * dim;
    if (task.num_queries == 0 || task.num_keys == 0) return;
    s.products.set_rows(k.data + task.first_key * k.stride + column, k.stride,
                        v.data + task.first_key * v.stride + column, v.stride, task.num_keys);
    for (int64_t begin = 0; begin < task.num_queries; begin += kQueryTile)
      tile(task, begin, std::min(kQueryTile, task.num_queries - begin), s);
  }

  void tile(const HeadTask& task, int64_t begin, int64_t count, AttentionScratch<Products>& s) const {
    const int64_t dim = shape.head_dim, column = task.head * dim;
    const int64_t seen = visible_keys(shape, task, begin + count - 1), padded = simd::round_up(seen, Products::kPad);
    const T scale = T(1) / std::sqrt(static_cast<T>(dim));
    const int64_t first = task.first_query + begin;
    copy_rows(q.data + first * q.stride + column, q.stride, count, dim, scale, s.queries.data());
    s.products.scores(count, padded, s.queries.data(), s.scores.data());
    for (int64_t i = 0; i < count; ++i) {
      T* row = s.scores.data() + i * s.width;
      const int64_t keys = visible_keys(shape, task, begin + i);
      const T top = max_row(row, keys);
      const T sum = exp_row(row, keys, padded, top);
      log_sum[(first + i) * shape.num_heads + task.head] = top + std::log(sum);
      normalise(task, begin + i, row, padded, T(1) / sum, s.mask.data());
    }
    s.products.mixed(count, seen, padded, s.scores.data(), s.tile_out.data());
    for (int64_t i = 0; i < count; ++i)
      std::copy_n(s.tile_out.data() + i * dim, dim, out.data + (first + i) * out.stride + column);
  }

  void normalise(const HeadTask& task, int64_t query, T* row, int64_t padded, T factor, float* mask) const {
    if (!shape.dropout.active()) {
      for (int64_t j = 0; j < padded; ++j) row[j] *= factor;
      return;
    }
    const int64_t time = shape.queries->time[static_cast<size_t>(task.first_query + query)];
    fill_mask(shape.dropout, task.sample, attention_element(task.head, time), padded, mask);
    for (int64_t j = 0; j < padded; ++j) row[j] *= factor * static_cast<T>(mask[j]);
  }
};

template <class Products>
struct HeadBackward {
  using T = typename Products::Number;
  const AttentionShape& shape;
  HeadRows<const T> q, k, v, grad_out;
  const T* log_sum;
  HeadRows<T> grad_q, grad_k, grad_v;

  void run(const HeadTask& task, AttentionScratch<Products>& s) const {
    const int64_t dim = shape.head_dim, column = task.head * dim, keys = task.num_keys;
    if (keys == 0) return;
    s.products.set_rows(k.data + task.first_key * k.stride + column, k.stride,
                        v.data + task.first_key * v.stride + column, v.stride, keys);
    std::fill_n(s.grad_keys.begin(), keys * dim, T(0));
    std::fill_n(s.grad_values.begin(), keys * dim, T(0));
    for (int64_t begin = 0; begin < task.num_queries; begin += kQueryTile)
      tile(task, begin, std::min(kQueryTile, task.num_queries - begin), s);
    for (int64_t n = 0; n < keys; ++n) {
      std::copy_n(s.grad_keys.data() + n * dim, dim, grad_k.data + (task.first_key + n) * grad_k.stride + column);
      std::copy_n(s.grad_values.data() + n * dim, dim, grad_v.data + (task.first_key + n) * grad_v.stride + column);
    }
  }

  void tile(const HeadTask& task, int64_t begin, int64_t count, AttentionScratch<Products>& s) const {
    const int64_t dim = shape.head_dim, column = task.head * dim, first = task.first_query + begin;
    const int64_t seen = visible_keys(shape, task, begin + count - 1), padded = simd::round_up(seen, Products::kPad);
    const T scale = T(1) / std::sqrt(static_cast<T>(dim));
    copy_rows(q.data + first * q.stride + column, q.stride, count, dim, scale, s.queries.data());
    copy_rows(grad_out.data + first * grad_out.stride + column, grad_out.stride, count, dim, T(1), s.tile_grad.data());
    s.products.begin_tile(count, s.queries.data(), s.tile_grad.data());
    s.products.scores(count, padded, s.queries.data(), s.scores.data());
    s.products.weight_grads(count, padded, s.tile_grad.data(), s.grad_scores.data());
    for (int64_t i = 0; i < count; ++i) row(task, begin + i, i, padded, s);
    const std::vector<T>& weights = shape.dropout.active() ? s.dropped : s.scores;
    s.products.add_value_grads(count, seen, weights.data(), s.tile_grad.data(), s.grad_values.data());
    s.products.add_key_grads(count, seen, s.grad_scores.data(), s.queries.data(), s.grad_keys.data());
    s.products.query_grads(count, seen, padded, s.grad_scores.data(), s.tile_out.data());
    for (int64_t i = 0; i < count; ++i) {
      T* to = grad_q.data + (first + i) * grad_q.stride + column;
      for (int64_t d = 0; d < dim; ++d) to[d] = s.tile_out[static_cast<size_t>(i * dim + d)] * scale;
    }
  }

  // Turns a row of scores into weights (and dropped weights), and its row of weight gradients into score gradients.
  void row(const HeadTask& task, int64_t query, int64_t i, int64_t padded, AttentionScratch<Products>& s) const {
    T* weights = s.scores.data() + i * s.width;
    T* grads = s.grad_scores.data() + i * s.width;
    const int64_t n = task.first_query + query;
    exp_row(weights, visible_keys(shape, task, query), padded, log_sum[n * shape.num_heads + task.head]);
    if (shape.dropout.active()) {
      fill_mask(shape.dropout, task.sample, attention_element(task.head, shape.queries->time[static_cast<size_t>(n)]),
                padded, s.mask.data());
      T* dropped = s.dropped.data() + i * s.width;
      for (int64_t j = 0; j < padded; ++j) {
        const T factor = static_cast<T>(s.mask[static_cast<size_t>(j)]);
        dropped[j] = weights[j] * factor;
        grads[j] *= factor;
      }
    }
    simd::Vec<T> sum{};
    for (int64_t j = 0; j < padded; j += simd::kLanes<T>) sum += simd::load(weights + j) * simd::load(grads + j);
    const T delta = simd::sum_lanes<T>(sum);
    for (int64_t j = 0; j < padded; ++j) grads[j] = weights[j] * (grads[j] - delta);
  }
};

template <class Products, class Head>
void for_each_head(const AttentionShape& shape, const Head& head, bool backward) {
  const int64_t longest = shape.keys->longest();
  if (longest == 0) return;
  const int64_t total = shape.num_heads * shape.queries->num_sequences();
  at::parallel_for(0, total, 1, [&](int64_t begin, int64_t end) {
    AttentionScratch<Products> scratch(longest, shape.head_dim, backward, shape.dropout.active());
    for (int64_t i = begin; i < end; ++i) head.run(head_task(shape, i), scratch);
  });
}

}  // namespace

template <class T>
void attention_forward(const AttentionShape& shape, HeadRows<const T> q, HeadRows<const T> k, HeadRows<const T> v,
                       HeadRows<T> out, T* log_sum) {
  if constexpr (std::is_same_v<T, float>)
    if (shape.bf16)
      return for_each_head<Bf16Products>(shape, HeadForward<Bf16Products>{shape, q, k, v, out, log_sum}, false);
  using Products = PlainProducts<T>;
  for_each_head<Products>(shape, HeadForward<Products>{shape, q, k, v, out, log_sum}, false);
}

template <class T>
void attention_backward(const AttentionShape& shape, HeadRows<const T> q, HeadRows<const T> k, HeadRows<const T> v,
                        HeadRows<const T> grad_out, const T* log_sum, HeadRows<T> grad_q, HeadRows<T> grad_k,
                        HeadRows<T> grad_v) {
  if constexpr (std::is_same_v<T, float>)
    if (shape.bf16)
      return for_each_head<Bf16Products>(
          shape, HeadBackward<Bf16Products>{shape, q, k, v, grad_out, log_sum, grad_q, grad_k, grad_v}, true);
  using Products = PlainProducts<T>;
  for_each_head<Products>(shape, HeadBackward<Products>{shape, q, k, v, grad_out, log_sum, grad_q, grad_k, grad_v},
                          true);
}

#define REDLINE_ATTENTION(T)                                                                                          \
  template void attention_forward<T>(const AttentionShape&, HeadRows<const T>, HeadRows<const T>, HeadRows<const T>,  \
                                     HeadRows<T>, T*);                                                                \
  template void attention_backward<T>(const AttentionShape&, HeadRows<const T>, HeadRows<const T>, HeadRows<const T>, \
                                      HeadRows<const T>, const T*, HeadRows<T>, HeadRows<T>, HeadRows<T>);
REDLINE_ATTENTION(float)
REDLINE_ATTENTION(double)
#undef REDLINE_ATTENTION

}  // namespace redline::models
