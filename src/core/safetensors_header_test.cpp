// Hostile and ordinary headers as a table: each attack is refused with the words that name it.
#include "core/safetensors_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace redline {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& json, uint64_t data_bytes) {
  try {
    parse_stored_header(json, data_bytes, "evil.safetensors");
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "accepted";
}

std::string one(const std::string& type, const std::string& shape, const std::string& offsets) {
  return R"({"w":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

TEST(SafetensorsHeader, ReadsWhatTheFormatAllows) {
  const StoredHeader header = parse_stored_header(
      R"({"__metadata__":{"format":"pt","k\u00e9y":"\ud83d\ude00\n"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
      R"( "a" : { "shape" : [ ] , "data_offsets":[0,4],"dtype":"F32"}, "e":{"dtype":"I64","shape":[0,7],"data_offsets":[16,16]}}   )",
      16, "f");
  ASSERT_EQ(header.entries.size(), 3u);
  EXPECT_EQ(header.entries[0].name, "b");
  EXPECT_EQ(header.entries[0].type, StoredType::BF16);
  EXPECT_EQ(header.entries[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(header.entries[1].shape, std::vector<int64_t>{});
  EXPECT_EQ(header.entries[2].begin, 16u);
  EXPECT_EQ(header.metadata.at("kéy"), "😀\n");
  EXPECT_TRUE(parse_stored_header("{}", 0, "f").entries.empty());
}

TEST(SafetensorsHeader, RefusesEachAttackByName) {
  struct Row {
    std::string json;
    uint64_t data_bytes;
    std::string words;
  };
  const std::string pair =
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":)";
  const Row rows[] = {
      // Shapes and lengths that wrap: 2^62 * 4 elements of 4 bytes is 2^66 = 0 (mod 2^64), with and without a zero
      // beside it.
      {one("F32", "[4611686018427387904,4]", "[0,0]"), 0, "product of its shape wraps"},
      {one("F32", "[0,4611686018427387904,4]", "[0,0]"), 0, "product of its shape wraps"},
      {one("U8", "[4294967296,4294967296]", "[0,0]"), 0, "product of its shape wraps"},
      {one("F64", "[2305843009213693952]", "[0,0]"), 0, "product of its shape wraps"},
      {one("F32", "[18446744073709551616]", "[0,4]"), 4, "over 64 bits"},
      {one("F32", "[9223372036854775808]", "[0,4]"), 4, "63 bits"},
      {one("F32", "[-1]", "[0,4]"), 4, "negative"},
      {one("F32", "[1.0]", "[0,4]"), 4, "not an integer"},
      {one("F32", "[1e0]", "[0,4]"), 4, "not an integer"},
      {one("F32", "[01]", "[0,4]"), 4, "leading zero"},
      {one("F32", "[1]", "[0,18446744073709551615]"), 4, "past the 4 bytes"},
      {one("F32", "[1]", "[18446744073709551612,0]"), 4, "end before they begin"},
      {one("F32", "[1]", "[4,8]"), 4, "past the 4 bytes"},
      {one("F32", "[2]", "[0,4]"), 4, "need 8 bytes, data_offsets give 4"},
      {one("F32", "[1]", "[0]"), 4, "needs two numbers"},
      {one("F32", "[1]", "[0,4,8]"), 4, "more than 2 numbers"},
      {one("F32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "more than 16 numbers"},
      {one("F33", "[1]", "[0,4]"), 4, "unknown type 'F33'"},
      {one("F4", "[8]", "[0,4]"), 4, "unknown type 'F4'"},
      {one("", "[1]", "[0,4]"), 4, "unknown type ''"},
      {pair + "[2,6]}}", 6, "overlaps"},
      {pair + "[0,4]}}", 4, "overlaps"},
      {pair + "[8,12]}}", 12, "a hole of 4 bytes"},
      {pair + "[4,8]}}", 9, "1 trailing bytes"},
      {one("F32", "[1]", "[4,8]"), 8, "a hole of 4 bytes"},
      {"{}", 3, "3 trailing bytes"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8, "duplicate tensor 'a'"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "duplicate key 'dtype'"},
      {R"({"__metadata__":{"a":"1","a":"2"}})", 0, "duplicate metadata key"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "duplicate key '__metadata__'"},
      {R"({"__metadata__":{"a":1}})", 0, "expected a text"},
      {R"({"__metadata__":[]})", 0, "expected an object of texts"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "lacks data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"extra":1}})", 4, "unknown key 'extra'"},
      {R"({"a":[1]})", 4, "nested deeper than the format allows"},
      {one("F32", "[[1]]", "[0,4]"), 4, "nested deeper than the format allows"},
      {std::string(5'000'000, '{'), 4, "bad JSON"},
      {"{\"a\":" + std::string(5'000'000, '['), 4, "nested deeper"},
      {"", 0, "does not start with '{'"},
      {" {}", 0, "does not start with '{'"},
      {"{} x", 0, "after the closing"},
      {R"({"a)", 0, "no closing quote"},
      {R"({"a\)", 0, "inside an escape"},
      {R"({"\q":1})", 0, "unknown escape"},
      {R"({"\u12":1})", 0, "four hexadecimal"},
      {R"({"\ud800":1})", 0, "surrogate"},
      {R"({"\ud800A":1})", 0, "surrogate"},
      {R"({"\udc00":1})", 0, "surrogate"},
      {"{\"\xff\":1}", 0, "UTF-8"},
      {"{\"\xc0\xaf\":1}", 0, "UTF-8"},
      {"{\"\xed\xa0\x80\":1}", 0, "UTF-8"},
      {"{\"a\nb\":1}", 0, "control character"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},})", 4, "a key in quotes"},
      {std::string("{}\0", 3), 0, "after the closing"},
  };
  for (const Row& row : rows) {
    const std::string said = refusal(row.json, row.data_bytes);
    EXPECT_THAT(said, HasSubstr(row.words)) << row.json.substr(0, 200);
    EXPECT_THAT(said, HasSubstr("evil.safetensors"));
    EXPECT_LT(said.size(), 600u);
  }
}

TEST(SafetensorsHeader, RefusesAHundredThousandEntries) {
  std::string json = "{";
  for (int i = 0; i < 100'000; ++i) {
    json += (i ? ",\"t" : "\"t") + std::to_string(i) + "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
  }
  EXPECT_THAT(refusal(json + "}", 0), HasSubstr("more than 99999 entries"));
  std::string metadata = R"({"__metadata__":{)";
  for (int i = 0; i < 100'000; ++i) metadata += (i ? ",\"" : "\"") + std::to_string(i) + "\":\"\"";
  EXPECT_THAT(refusal(metadata + "}}", 0), HasSubstr("metadata entries"));
}

TEST(SafetensorsHeader, LengthIsHeldAgainstLimitAndFile) {
  auto length = [](uint64_t value, uint64_t file_bytes) -> std::string {
    std::array<uint8_t, 8> bytes;
    for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
    try {
      return std::to_string(parse_header_length(bytes, file_bytes, "f"));
    } catch (const CheckpointError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(length(2, 10), "2");
  EXPECT_THAT(length(3, 10), HasSubstr("the file has only 10"));
  EXPECT_THAT(length(100'000'001, 1ull << 40), HasSubstr("the limit is 100000000"));
  EXPECT_THAT(length(UINT64_MAX, 10), HasSubstr("the limit is"));
  EXPECT_THAT(length(0, 4), HasSubstr("only 4"));
}

TEST(SafetensorsHeader, WritesWhatItReads) {
  std::vector<StoredEntry> entries = {{"quote\"back\\slash", StoredType::U8, {3}, 0, 0},
                                      {"tab\there \x01 ü", StoredType::F32, {2, 2}, 0, 0},
                                      {"scalar", StoredType::F64, {}, 0, 0},
                                      {"empty", StoredType::F16, {4, 0}, 0, 0}};
  const uint64_t data_bytes = place_entries(entries);
  EXPECT_EQ(data_bytes, 3u + 16 + 8);
  EXPECT_EQ(entries[2].begin, 0u);  // the widest type first, so that every tensor is aligned
  EXPECT_EQ(entries[1].begin, 8u);
  EXPECT_EQ(entries[0].begin, 24u);
  const std::string bytes = header_bytes(entries, {{"format", "pt"}, {"line", "a\nb"}});
  EXPECT_EQ(bytes.size() % 8, 0u);
  const StoredHeader back = parse_stored_header(std::string_view(bytes).substr(8), data_bytes, "f");
  ASSERT_EQ(back.entries.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(back.entries[i].name, entries[i].name);
    EXPECT_EQ(back.entries[i].type, entries[i].type);
    EXPECT_EQ(back.entries[i].shape, entries[i].shape);
    EXPECT_EQ(back.entries[i].begin, entries[i].begin);
  }
  EXPECT_EQ(back.metadata.at("line"), "a\nb");
}

}  // namespace
}  // namespace redline
