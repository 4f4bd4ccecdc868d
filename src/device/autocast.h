// Mixed precision for a scope: LibTorch's autocast on CPU or CUDA, weights stay fp32. Autocast is per thread, so a
// scope belongs to the thread that made it; autograd worker threads inherit it from the forward pass that recorded the
// graph.
#pragma once

#include <cstdint>

#include "core/precision.h"

namespace redline::device {

enum class DeviceKind : uint8_t { Cpu, Cuda };
// Of a torch::Device, which this header does not know.
template <class Device>
DeviceKind kind_of(const Device& device) {
  return device.is_cuda() ? DeviceKind::Cuda : DeviceKind::Cpu;
}

// Fp32 switches autocast off inside (losses and geometry in fp32 within a mixed forward). The cache of cast weights is
// dropped when the outermost scope ends: after an optimiser step it would hold old weights.
class AutocastScope {
 public:
  AutocastScope(DeviceKind device, Precision precision);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  DeviceKind device_;
  bool was_enabled_;
  int8_t previous_type_;  // at::ScalarType
};

bool autocast_enabled(DeviceKind device);

}  // namespace redline::device
