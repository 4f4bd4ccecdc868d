// The same order of calls as Python's torch.autocast: nesting counts scopes, and only the outermost clears the cache.
#include "device/autocast.h"

#include <ATen/autocast_mode.h>

namespace redline::device {
namespace {

at::DeviceType torch_device(DeviceKind device) { return device == DeviceKind::Cuda ? at::kCUDA : at::kCPU; }

at::ScalarType torch_type(Precision precision) {
  return precision == Precision::Fp16Mixed ? at::kHalf : precision == Precision::Bf16Mixed ? at::kBFloat16 : at::kFloat;
}

}  // namespace

AutocastScope::AutocastScope(DeviceKind device, Precision precision)
    : device_(device),
      was_enabled_(at::autocast::is_autocast_enabled(torch_device(device))),
      previous_type_(static_cast<int8_t>(at::autocast::get_autocast_dtype(torch_device(device)))) {
  at::autocast::increment_nesting();
  at::autocast::set_autocast_enabled(torch_device(device), precision != Precision::Fp32);
  if (precision != Precision::Fp32) at::autocast::set_autocast_dtype(torch_device(device), torch_type(precision));
}

AutocastScope::~AutocastScope() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_dtype(torch_device(device_), static_cast<at::ScalarType>(previous_type_));
  at::autocast::set_autocast_enabled(torch_device(device_), was_enabled_);
}

bool autocast_enabled(DeviceKind device) { return at::autocast::is_autocast_enabled(torch_device(device)); }

}  // namespace redline::device
