// A mutex is enough: a trace covers a few steps, and a stage takes microseconds or more.
#include "measure/spans.h"

#include <utility>

namespace redline::measure {

void SpanLog::begin_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
}

void SpanLog::push(const Span& span) {
  if (spans_.size() < capacity_) {
    spans_.push_back(span);
  } else {
    ++dropped_;
  }
}

void SpanLog::add(Phase phase, int64_t begin_ns, int64_t end_ns) {
  const std::lock_guard lock(mutex_);
  push({begin_ns, end_ns, step_, 0, false, static_cast<uint8_t>(phase)});
}

void SpanLog::add(Stage stage, int worker, int64_t begin_ns, int64_t end_ns) {
  const std::lock_guard lock(mutex_);
  push({begin_ns, end_ns, 0, worker + 1, true, static_cast<uint8_t>(stage)});
}

std::vector<Span> SpanLog::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(spans_, {});
}

int64_t SpanLog::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

}  // namespace redline::measure
