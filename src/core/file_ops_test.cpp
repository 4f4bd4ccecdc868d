#include "core/file_ops.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "core/check.h"
#include "core/error.h"
#include "core/strings.h"
#include "core/testing/memory_file_ops.h"

namespace redline {
namespace {

class FileOpsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "redline-core-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  size_t entries() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++count;
    return count;
  }
  std::filesystem::path folder_;
};

template <class Work>
std::string disk_error(Work work) {
  try {
    work();
  } catch (const DiskError& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(FileOpsTest, AtomicWriteReplacesAndLeavesNothingElse) {
  const auto path = folder_ / "card.json";
  write_file_atomic(path, "one");
  write_file_atomic(path, std::string_view("two\0three", 9));
  EXPECT_EQ(read_file(path), std::string("two\0three", 9));
  EXPECT_EQ(entries(), 1u);
}

TEST_F(FileOpsTest, ReadsLargeAndEmptyFilesAndPipesLikeFiles) {
  const std::string large(300'000, 'z');
  write_file_atomic(folder_ / "large", large);
  write_file_atomic(folder_ / "empty", "");
  EXPECT_EQ(read_file(folder_ / "large"), large);
  EXPECT_EQ(read_file(folder_ / "large", 300'000), large);
  EXPECT_EQ(read_file(folder_ / "empty"), "");
  EXPECT_FALSE(read_file("/proc/self/status").empty());  // a file that says it has no size
}

// Past 8 MiB a file goes around the page cache in whole pieces, without a copy where the caller's memory allows it;
// what is read back must not show where.
TEST_F(FileOpsTest, LargeFilesHaveEveryByteWhateverTheirPieces) {
  constexpr size_t kMost = (size_t{17} << 20) + 5, kPage = 4096;
  std::string memory(kMost + 2 * kPage, '\0');
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<char>(i * 2654435761U >> 13);
  const size_t to_page = kPage - reinterpret_cast<uintptr_t>(memory.data()) % kPage;
  const auto expect_whole = [&](const std::filesystem::path& path, std::string_view content, size_t piece) {
    const auto file = posix_file_ops().create(path);
    size_t count = 0;
    for (size_t at = 0; at < content.size(); at += piece) {
      file->write(std::as_bytes(std::span(content.substr(at, piece))));
      if (++count == 12) file->sync();  // in the middle of a piece
    }
    file->sync();
    file->close();
    EXPECT_TRUE(read_file(path) == content) << path << " " << content.size() << " " << piece;
  };
  for (const char* where : {"", "/dev/shm"}) {
    const std::filesystem::path path =
        *where == '\0' ? folder_ / "large" : std::filesystem::path(where) / folder_.filename();
    for (const size_t offset : {to_page, to_page + 16})
      for (const size_t size : {(size_t{8} << 20) - 1, size_t{8} << 20, (size_t{8} << 20) + 4097, kMost})
        for (const size_t piece : {size_t{4096}, size_t{1'000'003}, size_t{64} << 20})
          expect_whole(path, std::string_view(memory).substr(offset, size), piece);
    std::filesystem::remove(path);
  }
}

TEST_F(FileOpsTest, ErrorsNamePathReasonAndAdvice) {
  const auto missing = folder_ / "missing\x1b";
  EXPECT_EQ(disk_error([&] { read_file(missing); }),
            "Cannot read '" + (folder_ / "missing\\x1b").string() + "': No such file or directory; check the path.");
  EXPECT_NE(disk_error([&] { read_file(folder_); }).find("Is a directory"), std::string::npos);
  EXPECT_NE(disk_error([&] { write_file_atomic(folder_ / "no" / "x", "y"); }).find("No such file"), std::string::npos);
  write_file_atomic(folder_ / "big", std::string(2000, 'x'));
  EXPECT_NE(disk_error([&] { read_file(folder_ / "big", 1999); }).find("larger than the limit of 1.95 KiB"),
            std::string::npos);
  EXPECT_NE(disk_error([&] { read_file("/dev/zero", 1000); }).find("larger than the limit"), std::string::npos);
}

TEST_F(FileOpsTest, FullDiskIsSaidAndNothingIsLeft) {
  const auto file = posix_file_ops().create("/dev/full");
  const std::string text = "x";
  const std::string error = disk_error([&] { file->write(std::as_bytes(std::span(text))); });
  EXPECT_NE(error.find("No space left on device; free space"), std::string::npos) << error;
  // After a failure the file stays failed: a later fsync must not report success for lost pages.
  EXPECT_NE(disk_error([&] { file->sync(); }), "no error");
}

TEST_F(FileOpsTest, DirectoriesAreMadeSyncedAndRemoved) {
  FileOps& ops = posix_file_ops();
  ops.make_directory(folder_ / "a" / "b");
  ops.make_directory(folder_ / "a" / "b");
  ops.sync_directory(folder_ / "a");
  write_file_atomic(folder_ / "a" / "file", "x");
  EXPECT_NE(disk_error([&] { ops.make_directory(folder_ / "a" / "file"); }), "no error");
  ops.rename(folder_ / "a", folder_ / "c");
  EXPECT_EQ(read_file(folder_ / "c" / "file"), "x");
  EXPECT_NE(disk_error([&] { ops.remove(folder_ / "c"); }), "no error") << "a folder with something in it stays";
  EXPECT_EQ(read_file(folder_ / "c" / "file"), "x");
  ops.remove(folder_ / "c" / "file");
  ops.remove(folder_ / "c" / "file");  // missing is fine
  ops.remove(folder_ / "c" / "b");
  ops.remove(folder_ / "c");
  EXPECT_EQ(entries(), 0u);
  EXPECT_NE(disk_error([&] { ops.sync_directory(folder_ / "c"); }), "no error");
}

TEST(MemoryFileOpsTest, RecordsTheAtomicProtocol) {
  MemoryFileOps disk;
  write_file_atomic("d/x", "hello", disk);
  std::vector<std::string> verbs;
  for (const std::string& operation : disk.operations()) verbs.push_back(operation.substr(0, operation.find(' ')));
  EXPECT_EQ(verbs, (std::vector<std::string>{"create", "write", "sync", "close", "rename", "sync_directory"}));
  EXPECT_EQ(disk.content("d/x"), "hello");
  EXPECT_EQ(disk.files().size(), 1u);
}

TEST(MemoryFileOpsTest, EveryInjectedFaultThrowsAndLeavesTheOldFile) {
  for (size_t fault = 0; fault < 6; ++fault) {
    MemoryFileOps disk;
    write_file_atomic("x", "old", disk);
    disk.fail_at(disk.operations().size() + fault);
    EXPECT_THROW(write_file_atomic("x", "new", disk), DiskError) << fault;
    // Operation 5 is the fsync of the directory: the new file is in place, only its durability is in doubt.
    EXPECT_EQ(disk.content("x"), fault < 5 ? "old" : "new") << fault;
    EXPECT_EQ(disk.files().size(), 1u) << "the temporary file is removed, fault " << fault;
  }
}

TEST(MemoryFileOpsTest, EveryCrashLeavesTheOldOrTheNewFileWhole) {
  size_t states = 0, with_new = 0;
  MemoryFileOps::for_every_crash([](MemoryFileOps& disk) { write_file_atomic("x", "old", disk); },
                                 [](MemoryFileOps& disk) { write_file_atomic("x", "new", disk); },
                                 [&](const MemoryFileOps::Files& files) {
                                   ++states;
                                   ASSERT_TRUE(files.contains("x"));
                                   EXPECT_TRUE(files.at("x") == "old" || files.at("x") == "new") << files.at("x");
                                   with_new += files.at("x") == "new" ? 1 : 0;
                                 });
  EXPECT_EQ(states, 28u);  // cut before each of six operations, and after all of them; four states each
  EXPECT_GE(with_new, 4u);
}

// The negative control: without fsync a crash can leave an empty file under the final name, and the model must show it.
TEST(MemoryFileOpsTest, TheModelCatchesAWriterThatForgetsToSync) {
  const auto careless = [](MemoryFileOps& disk) {
    const std::string text = "new";
    const auto file = disk.create("x.tmp");
    file->write(std::as_bytes(std::span(text)));
    file->close();
    disk.rename("x.tmp", "x");
    disk.sync_directory(".");
  };
  bool broken = false;
  MemoryFileOps::for_every_crash([](MemoryFileOps& disk) { write_file_atomic("x", "old", disk); }, careless,
                                 [&](const MemoryFileOps::Files& files) {
                                   const auto found = files.find("x");
                                   broken |= found == files.end() || (found->second != "old" && found->second != "new");
                                 });
  EXPECT_TRUE(broken);
}

TEST(MemoryFileOpsTest, DirectoriesMoveWithTheirContent) {
  MemoryFileOps disk;
  disk.make_directory("a/b");
  write_file_atomic("a/b/x", "1", disk);
  disk.rename("a/b", "a/c");
  EXPECT_EQ(disk.content("a/c/x"), "1");
  EXPECT_EQ(disk.content("a/b/x"), std::nullopt);
  EXPECT_TRUE(disk.files().contains("a/c/"));
  EXPECT_TRUE(disk.after_crash(MemoryFileOps::Crash::LoseUnsynced).contains("a/b/x")) << "the rename was not synced";
  disk.sync_directory("a");
  EXPECT_TRUE(disk.after_crash(MemoryFileOps::Crash::LoseUnsynced).contains("a/c/x"));
  EXPECT_THROW(disk.remove("a"), DiskError);
  for (const char* name : {"a/c/x", "a/c", "a"}) disk.remove(name);
  EXPECT_TRUE(disk.files().empty());
}

TEST(Check, SaysWhyAndWhere) {
  try {
    REDLINE_CHECK(1 > 2, "one is more than two");
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("one is more than two (1 > 2 is false at "), std::string::npos)
        << error.what();
    EXPECT_EQ(error.code(), ExitCode::Failure);
  }
}

}  // namespace
}  // namespace redline
