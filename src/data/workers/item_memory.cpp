#include "data/workers/item_memory.h"

#include <algorithm>

#include "core/strings.h"

namespace redline::data {

namespace {

constexpr uint64_t kLeastItemBytes = uint64_t{256} << 20;
constexpr uint64_t kMostFreeBytes = uint64_t{16} << 20, kLeastFreeBytes = uint64_t{1} << 20;
constexpr int64_t kUsualBufferBytes = int64_t{1} << 30;  // the default of max_buffer_bytes, where there is no loader

thread_local ItemMemory* current_item = nullptr;
thread_local uint64_t refused_limit = 0;  // of the last sample that was too large

}  // namespace

uint64_t item_limit_bytes(int64_t max_buffer_bytes) {
  return std::max(static_cast<uint64_t>(std::max<int64_t>(max_buffer_bytes, 0)) / 2, kLeastItemBytes);
}

MemoryBudget::MemoryBudget(int64_t max_buffer_bytes, int num_workers)
    : total_(item_limit_bytes(max_buffer_bytes) / 2 * 3), item_limit_(item_limit_bytes(max_buffer_bytes)) {
  // Together a quarter of the whole at most.
  const uint64_t workers = static_cast<uint64_t>(std::max(1, num_workers));
  free_bytes_ = std::clamp(total_ / 4 / workers, kLeastFreeBytes, kMostFreeBytes);
}

bool MemoryBudget::try_take(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > total_ - used_ || next_ticket_ != now_served_) return false;  // nobody overtakes those who wait
  used_ += bytes;
  return true;
}

void MemoryBudget::take(uint64_t bytes) {
  std::unique_lock lock(mutex_);
  const uint64_t ticket = next_ticket_++;
  given_.wait(lock, [&] { return ticket == now_served_ && bytes <= total_ - used_; });
  used_ += bytes;
  ++now_served_;
  lock.unlock();
  given_.notify_all();
}

void MemoryBudget::give(uint64_t bytes) noexcept {
  {
    const std::lock_guard lock(mutex_);
    used_ -= bytes;
  }
  given_.notify_all();
}

ItemMemory::ItemMemory(MemoryBudget* budget, uint64_t lease)
    : budget_(budget), limit_(budget != nullptr ? budget->item_limit() : item_limit_bytes(kUsualBufferBytes)) {
  granted_ = budget != nullptr ? budget->free_bytes() : limit_;
  if (budget_ != nullptr && lease > 0) {
    leased_ = std::min(lease, limit_);
    budget_->take(leased_);
    granted_ += leased_;
  }
  current_item = this;
}

ItemMemory::~ItemMemory() {
  current_item = nullptr;
  if (leased_ > 0) budget_->give(leased_);
}

bool has_item_memory() { return current_item != nullptr; }

Charge try_charge_memory(uint64_t bytes) noexcept {
  ItemMemory* item = current_item;
  if (item == nullptr) {
    refused_limit = item_limit_bytes(kUsualBufferBytes);
    return bytes <= refused_limit ? Charge::Granted : Charge::TooLarge;
  }
  if (bytes > item->limit_ || item->used_ > item->limit_ - bytes) {
    refused_limit = item->limit_;
    return Charge::TooLarge;
  }
  item->used_ += bytes;
  if (item->used_ <= item->granted_) return Charge::Granted;
  // By at least the free allowance, so that a long stream does not take the lock for every block.
  const uint64_t wanted =
      std::min(std::max(item->used_ - item->granted_, item->budget_->free_bytes()), item->limit_ - item->leased_);
  if (!item->budget_->try_take(wanted)) return Charge::Busy;
  item->leased_ += wanted;
  item->granted_ += wanted;
  return Charge::Granted;
}

void throw_memory_busy(int times) {
  throw MemoryBusy{current_item != nullptr ? static_cast<uint64_t>(times) * current_item->used_ : 0};
}

bool charge_memory(uint64_t bytes) {
  const Charge charge = try_charge_memory(bytes);
  if (charge == Charge::Busy) throw_memory_busy(1);
  return charge == Charge::Granted;
}

std::string too_large_text() {
  return "it needs more memory than one sample may take (" + format_bytes(refused_limit) +
         ", half of max_buffer_bytes but at least 256 MiB); raise max_buffer_bytes or leave it out";
}

}  // namespace redline::data
