// Asks whichever accelerator LibTorch has; no CUDA header is needed.
#include "device/host/pinned.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>

#include "core/error.h"

namespace redline::device {

bool can_pin_memory() { return at::accelerator::getAccelerator().has_value() && at::accelerator::deviceCount() > 0; }

std::shared_ptr<std::byte> allocate_pinned(size_t bytes) {
  if (!can_pin_memory()) {
    throw DeviceError(
        "pin_memory needs a device that can read pinned memory, and LibTorch sees none on this machine; set "
        "pin_memory: false.");
  }
  auto block = std::make_shared<c10::DataPtr>(at::globalContext().getPinnedMemoryAllocator()->allocate(bytes));
  return {block, static_cast<std::byte*>(block->mutable_get())};
}

}  // namespace redline::device
