// What must not fail half way: the accounting allocator neither counts nor refuses meanwhile.
#pragma once

#include "device/memory.h"

namespace redline::train {

class NoRefusals {
 public:
  NoRefusals() : was_(device::memory::enabled()) { device::memory::set_enabled(false); }
  ~NoRefusals() { device::memory::set_enabled(was_); }
  NoRefusals(const NoRefusals&) = delete;
  NoRefusals& operator=(const NoRefusals&) = delete;

 private:
  bool was_;
};

}  // namespace redline::train
