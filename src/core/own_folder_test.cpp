#include "core/own_folder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "core/error.h"
#include "core/file_ops.h"

namespace redline {
namespace {

namespace fs = std::filesystem;

class OwnFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "own-folder-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    base_ = pattern;
  }
  void TearDown() override { fs::remove_all(base_); }
  static void put(const fs::path& path) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "kept";
  }
  static std::string refusal(const fs::path& path) {
    try {
      remove_own_folder(path);
    } catch (const DiskError& error) {
      return error.what();
    }
    return "removed";
  }
  size_t entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(base_), fs::directory_iterator()));
  }
  fs::path base_;
};

TEST_F(OwnFolderTest, IsMadeUsedAndRemovedWithAllThatIsInIt) {
  {
    const OwnFolder folder = OwnFolder::temporary("try", base_);
    EXPECT_EQ(folder.path().parent_path(), base_);
    put(folder.path() / "a" / "b" / "file");
    EXPECT_EQ(entries(), 1u);
  }
  EXPECT_EQ(entries(), 0u);
}

TEST_F(OwnFolderTest, KeptAndPublishedOnesStay) {
  {
    OwnFolder kept = OwnFolder::create(base_ / "deep" / "kept");
    put(kept.path() / "file");
    kept.keep();
    OwnFolder moved = OwnFolder::create(base_ / "draft");
    EXPECT_TRUE(moved.publish(base_ / "done"));
    OwnFolder late = OwnFolder::create(base_ / "draft");
    put(late.path() / "late");
    EXPECT_FALSE(late.publish(base_ / "done")) << "nothing is replaced";
  }
  EXPECT_TRUE(fs::exists(base_ / "deep" / "kept" / "file"));
  EXPECT_TRUE(fs::exists(base_ / "done" / kOwnMark));
  EXPECT_FALSE(fs::exists(base_ / "done" / "late"));
  EXPECT_FALSE(fs::exists(base_ / "draft"));
  remove_own_folder(base_ / "done");  // held by nobody any more
  EXPECT_FALSE(fs::exists(base_ / "done"));
}

// The critical bug: where no folder could be made, the temporary directory itself was used and then emptied.
TEST_F(OwnFolderTest, WhatCannotBeMadeIsAnErrorAndNothingElseIsTouched) {
  put(base_ / "mine");
  EXPECT_THROW(OwnFolder::temporary("try", base_ / "missing"), DiskError);
  EXPECT_THROW(OwnFolder::temporary("try", base_ / "mine"), DiskError);
  EXPECT_THROW(OwnFolder::create(base_ / "mine"), DiskError);
  EXPECT_EQ(read_file(base_ / "mine"), "kept");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(OwnFolderTest, NothingWithoutTheMarkIsRemoved) {
  put(base_ / "plain" / "file");
  EXPECT_NE(refusal(base_ / "plain").find("mark"), std::string::npos);
  put(base_ / "forged" / kOwnMark);  // the name of the mark, not its text
  EXPECT_NE(refusal(base_ / "forged").find("mark"), std::string::npos);
  EXPECT_NE(refusal(base_ / "plain" / "file").find("no folder"), std::string::npos);
  EXPECT_TRUE(fs::exists(base_ / "plain" / "file"));
  EXPECT_TRUE(fs::exists(base_ / "forged" / kOwnMark));
  EXPECT_EQ(refusal(base_ / "missing"), "removed") << "nothing there, nothing to do";
}

TEST_F(OwnFolderTest, LinksAreRemovedNotFollowed) {
  put(base_ / "user" / "file");
  {
    const OwnFolder folder = OwnFolder::temporary("try", base_);
    fs::create_directory_symlink(base_ / "user", folder.path() / "link");
    fs::create_directory_symlink(folder.path(), base_ / "to_ours");
    EXPECT_NE(refusal(base_ / "to_ours").find("no folder"), std::string::npos);
  }
  EXPECT_TRUE(fs::exists(base_ / "user" / "file"));
  EXPECT_TRUE(fs::is_symlink(base_ / "to_ours"));
}

TEST_F(OwnFolderTest, AFolderWithTheWorkingDirectoryOrAHomeStays) {
  const fs::path before = fs::current_path();
  const std::string home = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
  {
    OwnFolder folder = OwnFolder::create(base_ / "ours");
    folder.keep();
  }
  fs::create_directories(base_ / "ours" / "below");
  fs::current_path(base_ / "ours" / "below");
  EXPECT_NE(refusal(base_ / "ours").find("working directory"), std::string::npos);
  fs::current_path(before);
  ::setenv("HOME", (base_ / "ours" / "below").c_str(), 1);
  EXPECT_NE(refusal(base_ / "ours").find("home"), std::string::npos);
  ::setenv("HOME", home.c_str(), 1);
  EXPECT_EQ(refusal(base_ / "ours"), "removed");
}

TEST_F(OwnFolderTest, ScratchOfAKilledProcessGoesThatOfALivingOneStays) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const OwnFolder folder = OwnFolder::temporary("try", base_);
    put(folder.path() / "file");
    (void)!::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(remove_abandoned_folders(base_, "redline-try-"), 0) << "its maker lives";
  EXPECT_EQ(entries(), 1u);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  put(base_ / "redline-try-users" / "file");  // the name alone is no mark
  { const OwnFolder next = OwnFolder::temporary("try", base_); }
  EXPECT_EQ(entries(), 1u);
  EXPECT_TRUE(fs::exists(base_ / "redline-try-users" / "file"));
  ::close(ready[0]);
  ::close(ready[1]);
}

// A mount below the folder: needs the right to mount; without it there is nothing to protect from.
TEST_F(OwnFolderTest, AMountPointInsideIsNotEntered) {
  {
    OwnFolder folder = OwnFolder::create(base_ / "ours");
    folder.keep();
  }
  const fs::path inside = base_ / "ours" / "mounted";
  fs::create_directories(inside);
  put(base_ / "user" / "file");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string shell = "mount --bind '" + (base_ / "user").string() + "' '" + inside.string() + "'";
    if (std::system(("unshare -m true && " + shell + " 2>/dev/null").c_str()) != 0) ::_exit(77);
    const bool refused = refusal(base_ / "ours").find("mounted") != std::string::npos;
    const bool there = fs::exists(base_ / "user" / "file");
    (void)!std::system(("umount '" + inside.string() + "'").c_str());
    ::_exit(refused && there ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    std::printf("no right to mount here: the case cannot arise\n");
  } else {
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  EXPECT_TRUE(fs::exists(base_ / "user" / "file"));
}

}  // namespace
}  // namespace redline
