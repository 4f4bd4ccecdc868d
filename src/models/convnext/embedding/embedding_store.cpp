#include "models/convnext/embedding/embedding_store.h"

#include <algorithm>

#include "core/check.h"
#include "core/log.h"
#include "core/philox.h"

namespace redline::models::embedding {

namespace {

constexpr uint64_t kKeptDraw = 0x656d62656464;
constexpr const char *kVectors = "embedding.vectors", *kLabels = "embedding.labels", *kIds = "embedding.ids";

EmbeddingSet copy_of(const torch::Tensor& vectors, const torch::Tensor& labels, const std::vector<int64_t>& ids) {
  REDLINE_CHECK(
      vectors.dim() == 2 && vectors.size(0) == labels.numel() && ids.size() == static_cast<size_t>(labels.numel()),
      "every embedding has a label and a sample");
  EmbeddingSet set;
  set.vectors = vectors.detach().to(torch::kCPU, torch::kFloat32).contiguous();
  if (set.vectors.is_alias_of(vectors)) set.vectors = set.vectors.clone();
  const torch::Tensor numbers = labels.to(torch::kCPU, torch::kInt64).contiguous();
  set.labels.assign(numbers.const_data_ptr<int64_t>(), numbers.const_data_ptr<int64_t>() + numbers.numel());
  set.ids = ids;
  return set;
}

void add_all(const EmbeddingSet& set, EmbeddingRows& rows) {
  const float* vector = set.size() > 0 ? set.vectors.const_data_ptr<float>() : nullptr;
  for (size_t i = 0; i < set.labels.size(); ++i)
    rows.add(set.ids[i], set.labels[i], vector + static_cast<int64_t>(i) * set.width(), set.width());
}

}  // namespace

void EmbeddingRows::add(int64_t id, int64_t label, const float* vector, int64_t width) {
  const std::pair key(mix_key(kKeptDraw, static_cast<uint64_t>(id)), id);
  if (static_cast<int64_t>(rows_.size()) >= most_ && !rows_.contains(key)) {
    const auto last = std::prev(rows_.end());
    if (last->first < key) return;
    rows_.erase(last);
  }
  Row& row = rows_[key];
  row.id = id;
  row.label = label;
  row.vector.assign(vector, vector + width);
}

EmbeddingSet EmbeddingRows::set() const {
  std::vector<const Row*> rows;
  for (const auto& [key, row] : rows_) rows.push_back(&row);
  std::sort(rows.begin(), rows.end(), [](const Row* a, const Row* b) { return a->id < b->id; });
  EmbeddingSet out;
  if (rows.empty()) return out;
  const auto width = static_cast<int64_t>(rows[0]->vector.size());
  out.vectors = torch::empty({static_cast<int64_t>(rows.size()), width});
  auto* to = out.vectors.mutable_data_ptr<float>();
  for (const Row* row : rows) {
    REDLINE_CHECK(static_cast<int64_t>(row->vector.size()) == width, "a model's embeddings have one width");
    to = std::copy(row->vector.begin(), row->vector.end(), to);
    out.labels.push_back(row->label);
    out.ids.push_back(row->id);
  }
  return out;
}

void EmbeddingRows::restore(const EmbeddingSet& set) {
  rows_.clear();
  add_all(set, *this);
}

EmbeddingStore::EmbeddingStore(const EmbeddingOptions& options)
    : options_(options), training_(options.max_samples), running_(options.max_samples) {}

void EmbeddingStore::stage(const torch::Tensor& vectors, const torch::Tensor& labels, const std::vector<int64_t>& ids,
                           const torch::Tensor& mixed_share) {
  if (!options_.looks() || ids.empty()) return;  // a batch of no data set (a probe's) has no samples to remember
  EmbeddingSet set = copy_of(vectors, labels, ids);
  if (mixed_share.defined()) {
    const torch::Tensor pure = mixed_share.to(torch::kCPU).le(0.0).nonzero().flatten();
    std::vector<int64_t> kept_labels, kept_ids;
    for (int64_t i = 0; i < pure.numel(); ++i) {
      const auto row = static_cast<size_t>(pure[i].item<int64_t>());
      kept_labels.push_back(set.labels[row]);
      kept_ids.push_back(set.ids[row]);
    }
    set = {set.vectors.index_select(0, pure), std::move(kept_labels), std::move(kept_ids)};
    if (set.size() == 0) return;
  }
  staged_.push_back(std::move(set));
}

void EmbeddingStore::committed() {
  for (const EmbeddingSet& set : staged_) add_all(set, training_);
  staged_.clear();
}

void EmbeddingStore::add_validation(const torch::Tensor& vectors, const torch::Tensor& labels,
                                    const std::vector<int64_t>& ids) {
  if (!ids.empty()) add_all(copy_of(vectors, labels, ids), running_);
}

void EmbeddingStore::take_validation() {
  taken_ = running_.set();
  running_.clear();
}

std::vector<torch::Tensor> EmbeddingStore::taken_rows() const {
  if (taken_.size() == 0) return {};
  return {taken_.vectors, torch::tensor(taken_.labels, torch::kInt64), torch::tensor(taken_.ids, torch::kInt64)};
}

// Of all ranks' samples the same are kept as of those of one process: the smallest hashes.
void EmbeddingStore::set_taken_rows(const std::vector<torch::Tensor>& rows) {
  taken_ = {};
  if (rows.size() != 3 || !rows[0].defined()) return;
  EmbeddingRows kept(options_.max_samples);
  const torch::Tensor ids = rows[2].contiguous();
  kept.restore(copy_of(rows[0], rows[1], {ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + ids.numel()}));
  taken_ = kept.set();
}

std::map<std::string, double> EmbeddingStore::finish_validation() {
  validation_ = std::move(taken_);
  taken_ = {};
  if (monitored_ && !options_.separation_on_validation) return {};
  return measure(validation_, "validation");
}

std::map<std::string, double> EmbeddingStore::measure(const EmbeddingSet& set, const std::string& part) const {
  SeparationOptions options;
  options.recall_at = options_.recall_at;
  options.clusters = options_.cluster_metrics;
  const Separation found = measure_separation(set, options);
  for (const std::string& note : found.notes) log_warning_once("Embeddings of the " + part + " data: " + note);
  return found.metrics();
}

std::map<std::string, torch::Tensor> EmbeddingStore::state() const {
  const EmbeddingSet set = training_.set();
  if (set.size() == 0) return {};
  return {{kVectors, set.vectors}, {kLabels, torch::tensor(set.labels)}, {kIds, torch::tensor(set.ids)}};
}

void EmbeddingStore::restore(const std::map<std::string, torch::Tensor>& state) {
  training_.clear();
  staged_.clear();
  if (!state.contains(kVectors) || !state.contains(kLabels) || !state.contains(kIds)) return;
  const torch::Tensor ids = state.at(kIds).contiguous();
  training_.restore(copy_of(state.at(kVectors), state.at(kLabels),
                            {ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + ids.numel()}));
}

}  // namespace redline::models::embedding
