// The disk of these tests is a limit on the size of files, which a write meets half way: what a full disk does too.
#include "measure/kept_writes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

#include "core/error.h"
#include "core/file_ops.h"
#include "measure/csv.h"
#include "measure/faults.h"
#include "measure/tfevents.h"

namespace redline::measure {
namespace {

class SizeLimit {
 public:
  explicit SizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit now = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~SizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, SIG_DFL);
  }

 private:
  rlimit before_{};
};

class KeptWritesTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("redline_kept_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(KeptWritesTest, LinesWaitInOrderAndNoneIsTorn) {
  KeptFile file(folder_ / "log");
  file.append("first line\n");
  {
    const SizeLimit limit(15);  // the second line fits in part
    file.append("second line\n");
    file.append("third line\n");
    file.retry();
    EXPECT_EQ(read_file(folder_ / "log"), "first line\n");
    EXPECT_EQ(file.unwritten().waiting, 2);
    EXPECT_EQ(retry_kept_writes().waiting, 2);
  }
  file.append("fourth line\n");
  file.retry();
  EXPECT_EQ(read_file(folder_ / "log"), "first line\nsecond line\nthird line\nfourth line\n");
  EXPECT_FALSE(retry_kept_writes().any());
}

TEST_F(KeptWritesTest, PastTheBoundTheOldestAreDroppedAndCounted) {
  KeptWrites kept(100);
  bool full = true;
  std::string written;
  for (char c = 'a'; c <= 'j'; ++c)
    kept.put(20, [&, c] {
      if (full) throw DiskError("full");
      written += c;
    });
  EXPECT_EQ(kept.unwritten().waiting, 5);
  EXPECT_EQ(kept.unwritten().dropped, 5);
  full = false;
  kept.retry();
  EXPECT_EQ(written, "fghij");
  EXPECT_EQ(kept.unwritten().waiting, 0);
  EXPECT_TRUE(retry_kept_writes().any()) << "what was dropped stays missing";
}

TEST_F(KeptWritesTest, OnlyTheDisksErrorsAreKept) {
  KeptWrites kept;
  EXPECT_THROW(kept.put(1, [] { throw InternalError("ours"); }), InternalError);
  EXPECT_FALSE(kept.unwritten().any());
}

TEST_F(KeptWritesTest, CsvRowsAndNewColumnsWait) {
  CsvFile file(folder_ / "m.csv");
  file.row(1, {{"loss", 1.0}});
  {
    const SizeLimit limit(14);  // "step,loss\n1,1\n"
    file.row(2, {{"loss", 2.0}});
    file.row(3, {{"loss", 3.0}, {"val_loss", 30.0}});  // a rewrite
    file.flush();
    EXPECT_EQ(read_file(folder_ / "m.csv"), "step,loss\n1,1\n");
  }
  file.row(4, {{"loss", 4.0}});
  file.flush();
  EXPECT_EQ(read_file(folder_ / "m.csv"), "step,loss,val_loss\n1,1,\n2,2,\n3,3,30\n4,4,\n");
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    EXPECT_EQ(entry.path().filename(), "m.csv") << "a failed rewrite leaves nothing";
}

TEST_F(KeptWritesTest, EventRecordsWait) {
  EventFile file(folder_);
  const auto size = std::filesystem::file_size(file.path());
  {
    const SizeLimit limit(size + 7);
    file.scalars(1, {{"loss", 1.0}});
    EXPECT_EQ(std::filesystem::file_size(file.path()), size);
  }
  file.scalars(2, {{"loss", 2.0}});
  file.flush();
  EXPECT_GT(std::filesystem::file_size(file.path()), size + 60);
  EXPECT_FALSE(retry_kept_writes().any());
}

}  // namespace
}  // namespace redline::measure
