// Counts how long the disk takes to confirm what was written: an fsync that is slow tells a slow disk from a large
// checkpoint. One writer at a time.
#pragma once

#include <memory>
#include <utility>

#include "core/file_ops.h"
#include "core/time.h"

namespace redline::train {

class TimedFileOps final : public FileOps {
 public:
  struct Syncs {
    int64_t count = 0, ns = 0;
  };

  explicit TimedFileOps(std::unique_ptr<FileOps> inner) : inner_(std::move(inner)) {}
  // Since the last call.
  Syncs take() { return std::exchange(*syncs_, {}); }

  std::unique_ptr<WritableFile> create(const std::filesystem::path& path) override {
    return std::make_unique<File>(inner_->create(path), syncs_);
  }
  void make_directory(const std::filesystem::path& path) override { inner_->make_directory(path); }
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override { inner_->rename(from, to); }
  void remove(const std::filesystem::path& path) override { inner_->remove(path); }
  void sync_directory(const std::filesystem::path& path) override {
    const Timer timer(*syncs_);
    inner_->sync_directory(path);
  }

 private:
  struct Timer {
    explicit Timer(Syncs& into) : syncs(into) {}
    ~Timer() {
      ++syncs.count;
      syncs.ns += now_ns() - begin_ns;
    }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;
    Syncs& syncs;
    int64_t begin_ns = now_ns();
  };
  class File final : public WritableFile {
   public:
    File(std::unique_ptr<WritableFile> inner, std::shared_ptr<Syncs> syncs)
        : inner_(std::move(inner)), syncs_(std::move(syncs)) {}
    void write(std::span<const std::byte> bytes) override { inner_->write(bytes); }
    void sync() override {
      const Timer timer(*syncs_);
      inner_->sync();
    }
    void close() override { inner_->close(); }

   private:
    std::unique_ptr<WritableFile> inner_;
    std::shared_ptr<Syncs> syncs_;
  };

  std::unique_ptr<FileOps> inner_;
  std::shared_ptr<Syncs> syncs_ = std::make_shared<Syncs>();
};

}  // namespace redline::train
