#include "device/disk.h"

#include <gtest/gtest.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <fstream>

#include "core/error.h"

namespace redline::device {
namespace {

DiskOptions small() {
  DiskOptions options;
  options.seconds = 0.05;
  options.largest_bytes = uint64_t{8} << 20;
  return options;
}

TEST(Disk, Classifies) {
  const struct {
    const char* fstype;
    const char* source;
    std::optional<bool> rotational;
    std::optional<double> seconds;
    const char* kind;
  } cases[] = {
      {"ext4", "/dev/nvme0n1p2", false, {}, "ssd"},
      {"ext4", "/dev/sda1", true, 1e-4, "hdd"},  // a real disk's own word counts, even when its cache answered quickly
      {"ext4", "/dev/vda", true, 1e-4, "ssd"},   // virtual disks say "rotational" by default
      {"ext4", "/dev/vda", true, 8e-3, "hdd"},
      {"ext4", "/dev/vda", true, {}, "unknown"},
      {"ext4", "/dev/vda", false, {}, "ssd"},
      {"tmpfs", "tmpfs", {}, {}, "tmpfs"},
      {"nfs4", "server:/export", {}, 1e-4, "network"},
      {"fuse.sshfs", "me@host:", {}, {}, "network"},
      {"overlay", "overlay", {}, 2e-4, "ssd"},
      {"overlay", "overlay", {}, {}, "unknown"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(classify_disk(c.fstype, c.source, c.rotational, c.seconds), c.kind) << c.fstype << " " << c.source;
  }
}

TEST(Disk, MeasuresAFolderAndLeavesNothingBehind) {
  const auto folder = std::filesystem::temp_directory_path() / ("redline_disk_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const DiskFacts facts = measure_disk(folder, small());
  EXPECT_GT(facts.read_gb_per_second, 0.0) << facts.how;
  EXPECT_GE(facts.bytes_read, uint64_t{4} << 20);
  EXPECT_NE(facts.how.find("temporary file"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

TEST(Disk, MeasuresAFileOfOddSize) {
  const auto file = std::filesystem::temp_directory_path() / ("redline_disk_file_" + std::to_string(getpid()));
  std::ofstream(file) << std::string((size_t{5} << 20) + 123, 'x');
  const DiskFacts facts = measure_disk(file, small());
  EXPECT_GE(facts.bytes_read, uint64_t{5} << 20) << facts.how;
  EXPECT_EQ(std::filesystem::file_size(file), (uint64_t{5} << 20) + 123) << "measuring must not change the file";
  std::filesystem::remove(file);
}

TEST(Disk, SeesTmpfs) {
  struct statfs info {};
  constexpr long kTmpfsMagic = 0x01021994;
  const char* shm = "/dev/shm";
  const bool is_tmpfs = ::statfs(shm, &info) == 0 && info.f_type == kTmpfsMagic;
  if (is_tmpfs && ::access(shm, W_OK) == 0) {
    EXPECT_EQ(measure_disk(shm, small()).kind, "tmpfs");
  } else {
    EXPECT_EQ(classify_disk("tmpfs", "tmpfs", {}, {}), "tmpfs");
  }
}

TEST(Disk, RefusesWhatCanNotBeMeasured) {
  EXPECT_THROW(measure_disk("/no/such/path", small()), DataError);
  EXPECT_THROW(measure_disk("/dev/null", small()), DataError);
  try {
    measure_disk("/no/\033[31msuch", small());
    FAIL();
  } catch (const DataError& error) {
    EXPECT_EQ(std::string(error.what()).find('\033'), std::string::npos);
  }
}

}  // namespace
}  // namespace redline::device
