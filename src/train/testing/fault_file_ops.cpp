// See fault_file_ops.h.
#include "train/testing/fault_file_ops.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "core/error.h"
#include "measure/faults.h"

namespace redline::train {
namespace {

void fault_point(const char* operation, const std::filesystem::path& path) {
  if (measure::faults::take("checkpoint.kill")) ::kill(::getpid(), SIGKILL);
  if (measure::faults::take("checkpoint.kill_soon")) {
    const auto delay = std::chrono::microseconds(20 + ::getpid() % 400);  // differs from run to run, needs no state
    std::thread([delay] {
      std::this_thread::sleep_for(delay);
      ::kill(::getpid(), SIGKILL);
    }).detach();
  }
  if (measure::faults::take("checkpoint.error")) {
    throw DiskError(std::string("Cannot ") + operation + " '" + path.string() +
                    "': No space left on device (injected).");
  }
}

class FaultFile final : public WritableFile {
 public:
  FaultFile(std::unique_ptr<WritableFile> inner, std::filesystem::path path)
      : inner_(std::move(inner)), path_(std::move(path)) {}
  void write(std::span<const std::byte> bytes) override {
    fault_point("write", path_);
    inner_->write(bytes);
  }
  void sync() override {
    fault_point("flush", path_);
    inner_->sync();
  }
  void close() override { inner_->close(); }

 private:
  std::unique_ptr<WritableFile> inner_;
  std::filesystem::path path_;
};

class FaultFileOps final : public FileOps {
 public:
  explicit FaultFileOps(FileOps& inner) : inner_(inner) {}
  std::unique_ptr<WritableFile> create(const std::filesystem::path& path) override {
    fault_point("create", path);
    return std::make_unique<FaultFile>(inner_.create(path), path);
  }
  void make_directory(const std::filesystem::path& path) override {
    fault_point("create the directory", path);
    inner_.make_directory(path);
  }
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    fault_point("put in place", to);
    inner_.rename(from, to);
  }
  void remove(const std::filesystem::path& path) override {
    fault_point("remove", path);
    inner_.remove(path);
  }
  void sync_directory(const std::filesystem::path& path) override {
    fault_point("flush the directory", path);
    inner_.sync_directory(path);
  }

 private:
  FileOps& inner_;
};

}  // namespace

std::unique_ptr<FileOps> with_fault_points(FileOps& inner) { return std::make_unique<FaultFileOps>(inner); }

}  // namespace redline::train
