#include "data/files/path_guard.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "core/error.h"

namespace redline::data {
namespace {

namespace fs = std::filesystem;

class PathGuardTest : public testing::Test {
 protected:
  void SetUp() override {
    top_ = fs::path(testing::TempDir()) / ("path_guard_" + std::to_string(::getpid()));
    fs::remove_all(top_);
    root_ = top_ / "root";
    fs::create_directories(root_ / "sub");
    write(top_ / "secret.txt", "secret");
    write(root_ / "a.bin", "hello");
    write(root_ / "sub/b.bin", "inner");
  }
  void TearDown() override { fs::remove_all(top_); }

  static void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string content(OpenResult& result) {
    std::vector<std::byte> buffer;
    EXPECT_TRUE(std::get<DataFile>(result).read_all(buffer));
    return {reinterpret_cast<const char*>(buffer.data()), buffer.size()};
  }
  static OpenProblem problem(const OpenResult& result) { return std::get<OpenFailure>(result).problem; }

  fs::path top_, root_;
};

TEST_F(PathGuardTest, OpensFilesBelowTheRoot) {
  const PathGuard guard(root_, false);
  auto file = guard.open("a.bin");
  EXPECT_EQ(content(file), "hello");
  auto inner = guard.open("sub/../sub/b.bin");
  EXPECT_EQ(content(inner), "inner");
}

TEST_F(PathGuardTest, ReadsRelativeToTheBaseAndUpToTheRoot) {
  const PathGuard guard(root_, root_ / "sub", false);
  auto up = guard.open("../a.bin");
  EXPECT_EQ(content(up), "hello");
  EXPECT_EQ(problem(guard.open("../../secret.txt")), OpenProblem::OutsideRoot);
}

TEST_F(PathGuardTest, RefusesEscapes) {
  const PathGuard guard(root_, false);
  EXPECT_EQ(problem(guard.open("../secret.txt")), OpenProblem::OutsideRoot);
  EXPECT_EQ(problem(guard.open("../../../../../../../../etc/passwd")), OpenProblem::OutsideRoot);
  EXPECT_EQ(problem(guard.open((top_ / "secret.txt").string())), OpenProblem::AbsoluteRefused);
  EXPECT_EQ(problem(guard.open("")), OpenProblem::BadName);
  EXPECT_EQ(problem(guard.open(std::string("a.bin\0x", 7))), OpenProblem::BadName);
  EXPECT_TRUE(std::get<OpenFailure>(guard.open("../secret.txt")).refused());
}

TEST_F(PathGuardTest, SymbolicLinksMayStayInsideOnly) {
  fs::create_symlink("a.bin", root_ / "relative_inside");
  fs::create_symlink(root_ / "a.bin", root_ / "absolute_inside");
  fs::create_symlink("../secret.txt", root_ / "relative_outside");
  fs::create_symlink(top_ / "secret.txt", root_ / "absolute_outside");
  fs::create_directory_symlink(top_, root_ / "folder_outside");
  fs::create_symlink("loop", root_ / "loop");
  const PathGuard guard(root_, true);
  auto relative = guard.open("relative_inside");
  EXPECT_EQ(content(relative), "hello");
  auto absolute = guard.open("absolute_inside");
  EXPECT_EQ(content(absolute), "hello");
  for (const char* name : {"relative_outside", "absolute_outside", "folder_outside/secret.txt"})
    EXPECT_EQ(problem(guard.open(name)), OpenProblem::OutsideRoot) << name;
  EXPECT_EQ(problem(guard.open("loop")), OpenProblem::Missing);
}

TEST_F(PathGuardTest, ARootWithASimilarNameIsNotTheRoot) {
  fs::create_directories(top_ / "root_other");
  write(top_ / "root_other/x", "x");
  fs::create_symlink(top_ / "root_other/x", root_ / "sibling");
  EXPECT_EQ(problem(PathGuard(root_, false).open("sibling")), OpenProblem::OutsideRoot);
}

TEST_F(PathGuardTest, RefusesWhatIsNotARegularFileWithoutBlocking) {
  ASSERT_EQ(::mkfifo((root_ / "pipe").c_str(), 0600), 0);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string socket_path = (root_ / "s").string();
  const bool has_socket = socket_path.size() < sizeof(address.sun_path);
  if (has_socket) {
    std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size() + 1);
    ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  const PathGuard guard(root_, true);
  EXPECT_EQ(problem(guard.open("pipe")), OpenProblem::NotRegular);
  EXPECT_EQ(problem(guard.open((root_ / "pipe").string())), OpenProblem::NotRegular);
  EXPECT_EQ(problem(guard.open("sub")), OpenProblem::NotRegular);
  EXPECT_EQ(problem(guard.open("/dev/zero")), OpenProblem::NotRegular);
  if (has_socket) {
    EXPECT_EQ(problem(guard.open("s")), OpenProblem::NotRegular);
  }
  ::close(listener);
}

TEST_F(PathGuardTest, AbsolutePathsWhenAllowed) {
  const PathGuard guard(root_, true);
  auto file = guard.open((top_ / "secret.txt").string());
  EXPECT_EQ(content(file), "secret");
}

TEST_F(PathGuardTest, NamesTheMissingAndTheForbidden) {
  write(root_ / "locked", "x");
  fs::permissions(root_ / "locked", fs::perms::none);
  const PathGuard guard(root_, false);
  const auto missing = guard.open("nothing.wav");
  EXPECT_EQ(problem(missing), OpenProblem::Missing);
  EXPECT_FALSE(std::get<OpenFailure>(missing).refused());
  EXPECT_NE(std::get<OpenFailure>(missing).reason.find("nothing.wav"), std::string::npos);
  if (::geteuid() != 0) {  // root may read everything
    EXPECT_EQ(problem(guard.open("locked")), OpenProblem::NoPermission);
  }
}

TEST_F(PathGuardTest, ReadAtKnowsTheEnd) {
  const DataFile file = open_user_file(root_ / "a.bin");
  std::array<std::byte, 3> part{};
  EXPECT_TRUE(file.read_at(2, part));
  EXPECT_EQ(static_cast<char>(part[0]), 'l');
  EXPECT_FALSE(file.read_at(3, part));
  EXPECT_FALSE(file.read_at(UINT64_MAX, part));
  std::vector<std::byte> buffer;
  EXPECT_FALSE(file.read_all(buffer, 4));
}

TEST_F(PathGuardTest, UserMistakesAreDataErrors) {
  EXPECT_THROW(open_user_file(root_ / "none"), DataError);
  EXPECT_THROW(open_user_file(root_), DataError);
  EXPECT_THROW(PathGuard(root_ / "none", false), DataError);
  EXPECT_THROW(PathGuard(root_, top_, false), DataError);
}

}  // namespace
}  // namespace redline::data
