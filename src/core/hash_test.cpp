// CRC32C vectors: RFC 3720 appendix B.4. SHA-256 vectors: NIST FIPS 180-4 examples and the NESSIE/CAVP million-a
// message.
#include "core/hash.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "core/detail/hash_kernels.h"
#include "core/philox.h"

namespace redline {
namespace {

std::span<const std::byte> bytes_of(const std::vector<uint8_t>& data) { return std::as_bytes(std::span(data)); }
std::span<const std::byte> bytes_of_text(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::vector<uint8_t> noise_bytes(size_t size, uint64_t seed) {
  KeyedStream stream(seed, 0, 0, 0);
  std::vector<uint8_t> data(size);
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(stream.next_u32());
  return data;
}

TEST(Crc32c, VectorsOfRfc3720) {
  std::vector<uint8_t> up(32), down(32);
  for (size_t i = 0; i < 32; ++i) up[i] = static_cast<uint8_t>(i), down[i] = static_cast<uint8_t>(31 - i);
  EXPECT_EQ(crc32c(bytes_of(std::vector<uint8_t>(32, 0x00))), 0x8a9136aau);
  EXPECT_EQ(crc32c(bytes_of(std::vector<uint8_t>(32, 0xff))), 0x62a8ab43u);
  EXPECT_EQ(crc32c(bytes_of(up)), 0x46dd794eu);
  EXPECT_EQ(crc32c(bytes_of(down)), 0x113fdb5cu);
  const std::vector<uint8_t> read_command = {0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                             0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00,
                                             0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, 0x00, 0x00, 0x00,
                                             0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
  EXPECT_EQ(crc32c(bytes_of(read_command)), 0xd9963a56u);
  EXPECT_EQ(crc32c(bytes_of_text("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c({}), 0u);
}

// The definition, one bit at a time.
uint32_t crc32c_bits(const uint8_t* data, size_t size, uint32_t state) {
  for (size_t i = 0; i < size; ++i) {
    state ^= data[i];
    for (int bit = 0; bit < 8; ++bit) state = (state & 1) != 0 ? (state >> 1) ^ 0x82F63B78u : state >> 1;
  }
  return state;
}

TEST(Crc32c, EveryPathAgreesWithTheDefinitionAtEverySizeAndAlignment) {
  const std::vector<uint8_t> data = noise_bytes(40'000, 1);
  std::vector<size_t> sizes;
  for (size_t size = 0; size < 100; ++size) sizes.push_back(size);
  for (size_t size : {767, 768, 769, 1535, 1536, 5000, 12287, 12288, 12289, 13056, 24576, 39'990})
    sizes.push_back(size);
  for (size_t size : sizes) {
    for (size_t offset : {0, 1, 7}) {
      const uint8_t* begin = data.data() + offset;
      const uint32_t expected = crc32c_bits(begin, size, 0x12345678);
      EXPECT_EQ(detail::crc32c_table(begin, size, 0x12345678), expected) << size;
      if (detail::has_sse42()) {
        EXPECT_EQ(detail::crc32c_sse42(begin, size, 0x12345678), expected) << size;
      }
    }
  }
}

TEST(Crc32c, ContinuesFromAPreviousValue) {
  const std::vector<uint8_t> data = noise_bytes(30'000, 2);
  const auto whole = bytes_of(data);
  for (size_t cut : {0, 1, 13, 12'288, 29'999, 30'000}) {
    EXPECT_EQ(crc32c(whole.subspan(cut), crc32c(whole.first(cut))), crc32c(whole)) << cut;
  }
}

TEST(Sha256, NistVectors) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqr"
                       "smnopqrstnopqr"
                       "stu"),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, AnyWayOfCuttingGivesTheSameDigest) {
  const std::string text(1000, 'x');
  for (size_t cut : {1, 55, 56, 63, 64, 65, 119, 120, 128, 999}) {
    Sha256 hash;
    hash.update(text.substr(0, cut));
    hash.update("");
    hash.update(text.substr(cut));
    EXPECT_EQ(hash.finish_hex(), sha256_hex(text)) << cut;
  }
  for (size_t size = 0; size < 130; ++size) {
    Sha256 one_by_one;
    for (size_t i = 0; i < size; ++i) one_by_one.update("x");
    EXPECT_EQ(one_by_one.finish_hex(), sha256_hex(text.substr(0, size))) << size;
  }
}

// Judged against the Python package xxhash 4.1 (xxh3_64_hexdigest). The lengths take each of XXH3's four paths.
TEST(Hash64, ValuesArePinned) {
  EXPECT_EQ(hex64(hash64("")), "2d06800538d394c2");
  EXPECT_EQ(hex64(hash64("redline")), "6bed24a7ec09d457");
  EXPECT_EQ(hex64(hash64("redline", 1)), "e9d33151a0428205");
  EXPECT_EQ(hex64(hash64(std::string(100, 'x'))), "c90984ffdf50ce42");
  EXPECT_EQ(hex64(hash64(std::string(200, 'x'))), "50ef124fb1e4de53");
  EXPECT_EQ(hex64(hash64(std::string(1000, 'x'), 7)), "a6b046c257309584");
}

TEST(Hash64, AnIdentityTellsWhichHashMadeIt) {
  EXPECT_EQ(identity_text(0x0123456789abcdef), "xxh3:0123456789abcdef");
  EXPECT_EQ(identity_of_text("xxh3:0123456789abcdef"), 0x0123456789abcdefu);
  for (const char* other : {"0123456789abcdef", "", "xxh3:", "xxh3:0123456789abcde", "xxh3:0123456789abcdeg",
                            "xxh3:-123456789abcdef", "xxh3:00123456789abcdef", "xxh4:0123456789abcdef"})
    EXPECT_EQ(identity_of_text(other), std::nullopt) << other;
}

TEST(Hash64, LengthContentSeedAndOrderMatter) {
  std::set<uint64_t> seen;
  size_t count = 0;
  for (size_t size = 0; size < 200; ++size, ++count) seen.insert(hash64(std::string(size, '\0')));
  for (int i = 0; i < 20'000; ++i, ++count) seen.insert(hash64("sample-" + std::to_string(i)));
  for (uint64_t seed = 1; seed < 1000; ++seed, ++count) seen.insert(hash64("x", seed));
  seen.insert(hash64("abcdefghijklmnopABCDEFGHIJKLMNOP"));
  seen.insert(hash64("ABCDEFGHIJKLMNOPabcdefghijklmnop"));
  EXPECT_EQ(seen.size(), count + 2);
}

TEST(Hash64, HexIsSixteenDigits) { EXPECT_EQ(hex64(0x0123456789abcdef), "0123456789abcdef"); }

}  // namespace
}  // namespace redline
