// Copies to the device on a stream of their own, so that the next batch travels while the current one computes. Written
// against LibTorch's device-neutral streams; compiled but untested, since no GPU was available. On the CPU it hands
// tensors through.
#pragma once

#include <memory>
#include <string>

namespace at {
class Tensor;
}

namespace redline::device {

// One per training loop; not for several threads.
class CopyStream {
 public:
  // "cpu", "cuda", "cuda:1", ... Throws DeviceError when LibTorch has no such device.
  explicit CopyStream(const std::string& device);
  ~CopyStream();

  // Starts the copy; non-blocking when `host` is pinned. The result may be used after wait(). `host` must stay alive
  // until then: the stream keeps a reference.
  at::Tensor start(const at::Tensor& host);
  // Makes the compute stream wait (not the CPU) for every copy started so far.
  void wait();
  bool copies() const;  // false on the CPU

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace redline::device
