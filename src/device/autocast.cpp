// The same order of calls as Python's torch.autocast: nesting counts scopes, and only the outermost clears the cache.
#include "device/autocast.h"

#include <ATen/autocast_mode.h>

#include "core/check.h"

namespace redline::device {
namespace {

at::DeviceType torch_device(DeviceKind device) { return device == DeviceKind::Cuda ? at::kCUDA : at::kCPU; }

at::ScalarType torch_type(FloatType type) {
  switch (type) {
    case FloatType::Fp32:
      return at::kFloat;
    case FloatType::Bf16:
      return at::kBFloat16;
    case FloatType::Fp16:
      return at::kHalf;
  }
  REDLINE_CHECK(false, "every FloatType has a torch type");
  return at::kFloat;
}

}  // namespace

std::string_view float_type_name(FloatType type) {
  switch (type) {
    case FloatType::Fp32:
      return "fp32";
    case FloatType::Bf16:
      return "bf16";
    case FloatType::Fp16:
      return "fp16";
  }
  return "?";
}

AutocastScope::AutocastScope(DeviceKind device, FloatType type)
    : device_(device),
      was_enabled_(at::autocast::is_autocast_enabled(torch_device(device))),
      previous_type_(static_cast<int8_t>(at::autocast::get_autocast_dtype(torch_device(device)))) {
  at::autocast::increment_nesting();
  at::autocast::set_autocast_enabled(torch_device(device), type != FloatType::Fp32);
  if (type != FloatType::Fp32) at::autocast::set_autocast_dtype(torch_device(device), torch_type(type));
}

AutocastScope::~AutocastScope() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_dtype(torch_device(device_), static_cast<at::ScalarType>(previous_type_));
  at::autocast::set_autocast_enabled(torch_device(device_), was_enabled_);
}

bool autocast_enabled(DeviceKind device) { return at::autocast::is_autocast_enabled(torch_device(device)); }

}  // namespace redline::device
