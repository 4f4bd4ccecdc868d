// Page-locked host memory, which a GPU copies from without stopping the CPU. Only a device can pin; without one, asking
// is an error rather than ordinary memory under a false name. Compiled but untested: no GPU was available.
#pragma once

#include <cstddef>
#include <memory>

namespace redline::device {

bool can_pin_memory();

// Freed (returned to the device's pool) with the last owner. Throws DeviceError when no device can pin.
std::shared_ptr<std::byte> allocate_pinned(size_t bytes);

}  // namespace redline::device
