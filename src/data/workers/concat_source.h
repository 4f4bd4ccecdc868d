// Several sources one after another, as one.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "core/check.h"
#include "data/source.h"

namespace redline::data {

class ConcatSource : public Source {
 public:
  explicit ConcatSource(std::vector<std::shared_ptr<Source>> parts) : parts_(std::move(parts)) {
    REDLINE_CHECK(!parts_.empty(), "a concatenation has parts");
    for (const auto& part : parts_) begins_.push_back(begins_.back() + part->size());
  }

  int64_t size() const override { return begins_.back(); }
  ReadResult read(int64_t index, measure::StageClock::Slot& slot) const override {
    const auto [part, local] = at(index);
    return part->read(local, slot);
  }
  double length(int64_t index) const override {
    const auto [part, local] = at(index);
    return part->length(local);
  }
  std::string length_unit() const override { return parts_[0]->length_unit(); }
  std::string name(int64_t index) const override {
    const auto [part, local] = at(index);
    return part->name(local);
  }
  uint64_t fingerprint() const override {
    uint64_t mixed = parts_.size();
    for (const auto& part : parts_) mixed = mix_key(mixed, part->fingerprint());
    return mixed;
  }
  uint64_t content_key(int64_t index) const override {
    const auto [part, local] = at(index);
    return part->content_key(local);
  }
  std::vector<int32_t> locality_groups() const override {
    std::vector<int32_t> groups;
    int32_t first = 0;
    for (const auto& part : parts_) {
      const auto own = part->locality_groups();
      if (own.empty()) return {};  // one part without: none
      for (int32_t group : own) groups.push_back(first + group);
      first += *std::max_element(own.begin(), own.end()) + 1;
    }
    return groups;
  }
  std::vector<int64_t> part_sizes() const {
    std::vector<int64_t> sizes;
    for (const auto& part : parts_) sizes.push_back(part->size());
    return sizes;
  }

 private:
  std::pair<const Source*, int64_t> at(int64_t index) const {
    const size_t part =
        static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), index) - begins_.begin()) - 1;
    return {parts_[part].get(), index - begins_[part]};
  }
  std::vector<std::shared_ptr<Source>> parts_;
  std::vector<int64_t> begins_{0};
};

}  // namespace redline::data
