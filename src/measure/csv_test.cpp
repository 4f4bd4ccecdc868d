#include "measure/csv.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "core/error.h"
#include "core/file_ops.h"

namespace redline::measure {
namespace {

class Csv : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / ("redline_csv_" + std::to_string(getpid()) + ".csv");
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::filesystem::path path_;
};

TEST_F(Csv, NewColumnsFillEarlierRowsWithNothing) {
  CsvFile file(path_);
  file.row(1, {{"loss", 0.5}});
  file.row(2, {{"loss", 0.25}, {"val_loss", 1.0}});
  file.row(3, {});
  file.row(4, {{"accuracy", std::nan("")}, {"loss", -HUGE_VAL}});
  EXPECT_EQ(read_file(path_), "step,loss,val_loss,accuracy\n1,0.5,,\n2,0.25,1,\n4,-inf,,nan\n");
  file.row(4, {{"val_loss", 2.0}});  // a second row of the same step
  EXPECT_THROW(file.row(3, {{"loss", 1}}), InternalError);
}

TEST_F(Csv, ResumeKeepsRowsUpToItsStepAndDropsATornOne) {
  {
    CsvFile file(path_);
    for (int64_t step = 1; step <= 4; ++step) file.row(step, {{"loss", static_cast<double>(step)}});
  }
  std::ofstream(path_, std::ios::app) << "5,0.";
  {
    CsvFile file(path_, 2);
    file.row(3, {{"loss", 30}});
  }
  EXPECT_EQ(read_file(path_), "step,loss\n1,1\n2,2\n3,30\n");
  { CsvFile anew(path_); }
  EXPECT_EQ(read_file(path_), "step\n");
}

TEST_F(Csv, RefusesAForeignFile) {
  std::ofstream(path_) << "name,age\nx,1\n";
  EXPECT_THROW(CsvFile(path_, 3), DataError);
  EXPECT_EQ(read_file(path_), "name,age\nx,1\n");
  EXPECT_THROW(CsvFile("/no/such/folder/x.csv"), DiskError);
}

}  // namespace
}  // namespace redline::measure
