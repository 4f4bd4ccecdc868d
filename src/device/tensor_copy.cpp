// record_stream tells the caching allocator that the compute stream uses a tensor made on the copy stream; without it
// the block could be handed out again too early.
#include "device/tensor_copy.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <vector>

#include "core/error.h"
#include "core/strings.h"

namespace redline::device {

struct CopyStream::Impl {
  c10::Device device;
  std::optional<c10::Stream> stream;  // empty on the CPU
  std::vector<at::Tensor> in_flight;  // hosts and copies of the current batch

  explicit Impl(c10::Device chosen) : device(chosen) {}
  c10::Stream compute_stream() const { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }
};

CopyStream::CopyStream(const std::string& device) {
  std::optional<c10::Device> parsed;
  try {
    parsed.emplace(device);
  } catch (const c10::Error&) {
    throw DeviceError("'" + printable(device) + "' is not a device LibTorch knows; use cpu, cuda or cuda:N.");
  }
  impl_ = std::make_unique<Impl>(*parsed);
  if (parsed->is_cpu()) return;
  const auto accelerator = at::accelerator::getAccelerator();
  if (!accelerator || *accelerator != parsed->type() || parsed->index() >= at::accelerator::deviceCount()) {
    throw DeviceError("The device '" + printable(device) + "' was asked for, but LibTorch sees " +
                      std::to_string(at::accelerator::deviceCount()) + " accelerators on this machine; use cpu.");
  }
  if (!parsed->has_index()) impl_->device = c10::Device(parsed->type(), at::accelerator::getDeviceIndex());
  impl_->stream = c10::impl::VirtualGuardImpl(impl_->device.type()).getStreamFromGlobalPool(impl_->device);
}

CopyStream::~CopyStream() = default;

bool CopyStream::copies() const { return impl_->stream.has_value(); }

at::Tensor CopyStream::start(const at::Tensor& host) {
  if (!impl_->stream) return host;
  const c10::StreamGuard guard(*impl_->stream);
  at::Tensor copy = host.to(host.options().device(impl_->device), /*non_blocking=*/host.is_pinned());
  impl_->in_flight.push_back(host);
  impl_->in_flight.push_back(copy);
  return copy;
}

void CopyStream::wait() {
  if (!impl_->stream) return;
  c10::Event done(impl_->device.type());
  done.record(*impl_->stream);
  const c10::Stream compute = impl_->compute_stream();
  done.block(compute);
  for (const at::Tensor& tensor : impl_->in_flight) {
    if (tensor.device() == impl_->device) tensor.record_stream(compute);
  }
  // Pinned hosts return to LibTorch's pinned pool, which itself waits for the copies recorded on them.
  impl_->in_flight.clear();
}

}  // namespace redline::device
