#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/testing/string_file.h"
#include "data/tar/tar_header.h"
#include "data/tar/tar_writer.h"
#include "data/tar_index.h"

namespace redline::data {
namespace {

namespace fs = std::filesystem;

std::string make_tar(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string out;
  TarWriter writer(std::make_unique<StringFile>(&out));
  for (const auto& [name, content] : members) writer.add(name, std::as_bytes(std::span(content)));
  writer.finish();
  return out;
}

TarIndex index_of(const std::string& tar) {
  return TarIndex::scan(
      [&](uint64_t offset, std::span<std::byte> out) {
        if (offset > tar.size() || out.size() > tar.size() - offset) return false;
        std::memcpy(out.data(), tar.data() + offset, out.size());
        return true;
      },
      tar.size(), "test.tar");
}

std::string problem_of(const std::string& tar) {
  try {
    index_of(tar);
  } catch (const DataError& error) {
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

void fix_checksum(std::string& tar, size_t block) {
  std::memset(tar.data() + block + 148, ' ', 8);
  unsigned sum = 0;
  for (size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(tar[block + i]);
  std::snprintf(tar.data() + block + 148, 8, "%06o", sum);
}

TEST(Tar, WritesAndFindsMembers) {
  const std::string long_name = std::string(60, 'd') + "/" + std::string(90, 'n') + ".flac";
  const std::string longer_name = std::string(200, 'x') + ".wav";
  const std::string tar =
      make_tar({{"a.wav", "hello"}, {"b.wav", ""}, {long_name, "long"}, {longer_name, "longer"}, {"ünï.wav", "utf8"}});
  EXPECT_EQ(tar.size() % 10240, 0u);
  const TarIndex index = index_of(tar);
  ASSERT_EQ(index.size(), 5u);
  for (const auto& [name, content] : std::vector<std::pair<std::string, std::string>>{
           {"a.wav", "hello"}, {"b.wav", ""}, {long_name, "long"}, {longer_name, "longer"}, {"ünï.wav", "utf8"}}) {
    const auto found = index.find(name);
    ASSERT_TRUE(found) << name;
    const auto member = index.member(*found);
    EXPECT_EQ(tar.substr(member.offset, member.size), content);
  }
  EXPECT_FALSE(index.find("c.wav"));
  EXPECT_EQ(make_tar({{"a", "x"}}), make_tar({{"a", "x"}}));
}

TEST(Tar, TheLastOfEqualNamesWins) {
  const std::string tar = make_tar({{"a", "old"}, {"b", "x"}, {"a", "new"}});
  const TarIndex index = index_of(tar);
  EXPECT_EQ(*index.find("a"), 2u);
}

TEST(Tar, ReadsGnuLongNamesAndSkipsWhatIsNotAFile) {
  std::string tar = make_tar({{"././@LongLink", std::string(150, 'n') + std::string(1, '\0')},
                              {"short", "content"},
                              {"folder", ""},
                              {"link", ""}});
  tar[156] = 'L';
  fix_checksum(tar, 0);
  tar[512 * 4 + 156] = '5';
  fix_checksum(tar, 512 * 4);
  tar[512 * 5 + 156] = '2';
  fix_checksum(tar, 512 * 5);
  const TarIndex index = index_of(tar);
  ASSERT_EQ(index.size(), 1u);
  EXPECT_EQ(index.member(0).name, std::string(150, 'n'));
  EXPECT_EQ(tar.substr(index.member(0).offset, 7), "content");
}

TEST(Tar, NamesAreOnlyNames) {
  const TarIndex index = index_of(make_tar({{"./x.wav", "1"}, {"../../etc/passwd", "2"}}));
  EXPECT_TRUE(index.find("x.wav"));
  EXPECT_TRUE(index.find("../../etc/passwd"));
}

TEST(Tar, DamageIsNamedWithItsPlace) {
  const std::string tar = make_tar({{"a.wav", std::string(1000, 'a')}, {"b.wav", std::string(1000, 'b')}});
  EXPECT_NE(problem_of(tar.substr(0, 1700)).find("half a header block"), std::string::npos);
  EXPECT_NE(problem_of(tar.substr(0, 2200)).find("passes the end"), std::string::npos);
  std::string flipped = tar;
  flipped[1536 + 5] ^= 1;
  EXPECT_NE(problem_of(flipped).find("checksum does not fit at byte 1536"), std::string::npos);
  std::string huge = tar;
  std::memcpy(huge.data() + 124, "77777777777", 11);
  fix_checksum(huge, 0);
  EXPECT_NE(problem_of(huge).find("passes the end"), std::string::npos);
  std::memcpy(huge.data() + 124, "\x80\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 12);  // base 256, wraps
  fix_checksum(huge, 0);
  EXPECT_NE(problem_of(huge).find("not a number"), std::string::npos);
  EXPECT_NE(problem_of(std::string(600, 'x')).find("checksum"), std::string::npos);
  EXPECT_EQ(index_of("").size(), 0u);
}

TEST(Tar, ATarWithoutEndBlocksIsWhole) {
  const std::string tar = make_tar({{"a.wav", "hello"}});
  EXPECT_EQ(index_of(tar.substr(0, 1024)).size(), 1u);
}

TEST(Tar, PaxSizesAndDamagedPax) {
  tar::Pending pending;
  EXPECT_TRUE(tar::parse_pax("12 path=abc\n20 size=12345678901\n", pending));
  EXPECT_EQ(pending.name, "abc");
  EXPECT_EQ(pending.size, 12345678901u);
  for (const char* bad :
       {"12 path=abc", "99 path=abc\n", "x path=abc\n", "3 p\n", "10 nokey\n\n", "0 \n", "-5 a=b\n", "13 size=-123\n"})
    EXPECT_FALSE(tar::parse_pax(bad, pending)) << bad;
  EXPECT_TRUE(tar::parse_pax("22 GNU.sparse.major=1\n", pending));
  EXPECT_TRUE(pending.sparse);
}

TEST(Tar, TheSideFileIsUsedOnlyForTheSameTar) {
  const fs::path folder = fs::path(testing::TempDir()) / ("tar_test_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const fs::path path = folder / "x.tar";
  std::ofstream(path, std::ios::binary) << make_tar({{"a.wav", "hello"}, {"b.wav", "you"}});
  const DataFile file = open_user_file(path);
  const TarIndex scanned = TarIndex::load(file, path);
  const fs::path side = path.string() + ".redline.idx";
  ASSERT_TRUE(fs::exists(side));
  const std::string bytes = read_file(side);
  const auto again = TarIndex::deserialize(bytes, file.size(), file.mtime_ns());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->fingerprint(), scanned.fingerprint());
  EXPECT_EQ(*again->find("b.wav"), 1u);
  EXPECT_FALSE(TarIndex::deserialize(bytes, file.size(), file.mtime_ns() + 1));
  EXPECT_FALSE(TarIndex::deserialize(bytes, file.size() + 512, file.mtime_ns()));
  for (size_t i = 0; i < bytes.size(); i += 3) {
    std::string flipped = bytes;
    flipped[i] ^= 0x20;
    EXPECT_FALSE(TarIndex::deserialize(flipped, file.size(), file.mtime_ns())) << i;
  }
  EXPECT_FALSE(TarIndex::deserialize(bytes.substr(0, bytes.size() - 1), file.size(), file.mtime_ns()));
  std::ofstream(side, std::ios::binary) << "garbage";
  EXPECT_EQ(TarIndex::load(file, path).size(), 2u);
  fs::remove_all(folder);
}

TEST(Tar, GroupsByStemAsWebDatasetDoes) {
  const TarIndex index = index_of(make_tar({{"d.x/a.JPG", "1"},
                                            {"d.x/a.cls", "2"},
                                            {"b.seg.png", "3"},
                                            {"b.jpg", "4"},
                                            {"noext", "5"},
                                            {"d.x/a.json", "6"}}));
  const auto samples = group_by_stem(index);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].key, "d.x/a");
  ASSERT_EQ(samples[0].parts.size(), 3u);
  EXPECT_EQ(samples[0].parts[0].first, "jpg");
  EXPECT_EQ(samples[0].parts[2].first, "json");
  EXPECT_EQ(samples[1].parts[0].first, "seg.png");
}

}  // namespace
}  // namespace redline::data
