#include "data/parquet/parquet_cache.h"

#include "core/error.h"
#include "data/parquet/parquet_narrow.h"

namespace redline::data {

RowGroupCache::RowGroupCache(const ParquetFiles& files, uint64_t max_bytes, bool widen_integers)
    : files_(files), max_bytes_(max_bytes), widen_integers_(widen_integers), slots_(files.row_groups().size()) {
  uint64_t all = 0;
  for (const auto& group : files.row_groups()) all += files.decoded_bytes(group, widen_integers);
  keeps_everything_ = all <= max_bytes;
}

std::shared_ptr<const DecodedRowGroup> RowGroupCache::decode(size_t group) const {
  auto rows = std::make_shared<DecodedRowGroup>();
  try {
    rows->columns = files_.decode(files_.row_groups()[group], widen_integers_);
    for (auto& column : rows->columns) {
      narrow_integers(column);
      rows->num_bytes += column.num_bytes();
    }
  } catch (const DataError& error) {
    rows->columns.clear();
    rows->broken = error.what();
  }
  return rows;
}

std::shared_ptr<const DecodedRowGroup> RowGroupCache::get(size_t group, bool* decoded) {
  Slot& slot = slots_[group];
  std::unique_lock lock(mutex_);
  loaded_.wait(lock, [&] { return !slot.loading; });
  slot.last_use = ++clock_;
  if (decoded != nullptr) *decoded = slot.rows == nullptr;
  if (slot.rows) {
    ++hits_;
    return slot.rows;
  }
  ++misses_;
  const uint64_t peak = files_.peak_bytes(files_.row_groups()[group], widen_integers_);
  slot.loading = true;
  // Whoever decodes waits for nothing, so this ends.
  loaded_.wait(lock, [&] { return decoding_bytes_ == 0 || decoding_bytes_ + peak <= max_bytes_; });
  decoding_bytes_ += peak;
  lock.unlock();
  std::shared_ptr<const DecodedRowGroup> rows;
  try {
    rows = decode(group);
  } catch (...) {
    lock.lock();
    decoding_bytes_ -= peak;
    slot.loading = false;
    loaded_.notify_all();
    throw;
  }
  lock.lock();
  decoding_bytes_ -= peak;
  slot.loading = false;
  slot.rows = rows;
  bytes_ += rows->num_bytes;
  if (keeps_everything_)
    slot.published.store(rows.get(), std::memory_order_release);
  else
    drop_oldest(group);
  loaded_.notify_all();
  return rows;
}

void RowGroupCache::drop_oldest(size_t keep) {
  while (bytes_ > max_bytes_) {
    size_t oldest = keep;
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (i != keep && slots_[i].rows && (oldest == keep || slots_[i].last_use < slots_[oldest].last_use)) oldest = i;
    }
    if (oldest == keep) return;
    bytes_ -= slots_[oldest].rows->num_bytes;
    slots_[oldest].rows.reset();  // rows in use stay alive through their own references
  }
}

RowGroupCache::Stats RowGroupCache::stats() const {
  const std::lock_guard lock(mutex_);
  return {hits_, misses_, bytes_};
}

}  // namespace redline::data
