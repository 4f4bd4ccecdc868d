#include "data/audio/manifest.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/philox.h"

namespace redline::data {
namespace {

TEST(Manifest, ReadsNemosLines) {
  const Manifest manifest = Manifest::parse(
      "{\"audio_filepath\": \"a/b.wav\", \"duration\": 3.25, \"text\": \"ignored\"}\n"
      "\n"
      "{\"audio_filename\": \"c.flac\", \"duration\": null, \"offset\": 1.5, \"shard_id\": 7, \"lang\": "
      "\"\\u00e9\"}\r\n"
      "{\"duration\": 1, \"audio_filepath\": \"d\\u00e9.wav\"}",
      "m.json");
  ASSERT_EQ(manifest.size(), 3u);
  EXPECT_EQ(manifest.file(0), "a/b.wav");
  EXPECT_EQ(manifest.duration(0), 3.25);
  EXPECT_EQ(manifest.offset(0), 0.0);
  EXPECT_EQ(manifest.shard(0), -1);
  EXPECT_EQ(manifest.file(1), "c.flac");
  EXPECT_TRUE(std::isnan(manifest.duration(1)));
  EXPECT_EQ(manifest.offset(1), 1.5);
  EXPECT_EQ(manifest.shard(1), 7);
  EXPECT_EQ(manifest.line(1), 3);
  EXPECT_EQ(manifest.file(2), "dé.wav");
}

TEST(Manifest, NamesFileAndLineOfWhatIsWrong) {
  const auto problem = [](const std::string& text) -> std::string {
    try {
      Manifest::parse("{\"audio_filepath\": \"a\", \"duration\": 1}\n" + text, "m.json");
    } catch (const DataError& error) {
      return error.what();
    }
    return "accepted";
  };
  for (const char* line : {"{", "[1]", "text", "{\"audio_filepath\": 3}", "{\"duration\": 1}",
                           "{\"audio_filepath\": \"a\", \"duration\": \"1\"}",
                           "{\"audio_filepath\": \"a\", \"duration\": -1}", "{\"audio_filepath\": [\"a\", \"b\"]}",
                           "{\"audio_filepath\": \"a\", \"duration\": 1e300}", "{\"audio_filepath\": \"a\\u0000b\"}",
                           "{\"audio_filepath\": \"a\", \"shard_id\": -2}", "{\"audio_filepath\": \"\xff\xfe\"}"}) {
    EXPECT_EQ(problem(line).substr(0, 9), "m.json:2:") << line << " -> " << problem(line);
  }
  EXPECT_THROW(Manifest::parse("", "m.json"), DataError);
  EXPECT_THROW(Manifest::parse("\n\n", "m.json"), DataError);
  EXPECT_THROW(Manifest::read("/nonexistent/manifest.json"), DataError);
}

TEST(Manifest, FingerprintIsOfTheText) {
  const std::string line = "{\"audio_filepath\": \"a\", \"duration\": 1}\n";
  EXPECT_EQ(Manifest::parse(line, "x").fingerprint(), Manifest::parse(line, "y").fingerprint());
  EXPECT_NE(Manifest::parse(line, "x").fingerprint(), Manifest::parse(line + line, "x").fingerprint());
}

// Mutated manifests: parsed or refused with a DataError, never anything else.
TEST(Manifest, SurvivesTenThousandMutations) {
  std::string base;
  for (int i = 0; i < 8; ++i)
    base += "{\"audio_filepath\": \"dir/clip_" + std::to_string(i) +
            ".flac\", \"duration\": 2.5, \"offset\": 0.25, \"shard_id\": 3}\n";
  const bool slow = std::getenv("REDLINE_SLOW") != nullptr;
  int refused = 0;
  for (uint64_t seed = 0; seed < (slow ? 100'000u : 10'000u); ++seed) {
    KeyedStream random(seed, 0, 0, 1);
    std::string text = base;
    for (int64_t edits = random.uniform_int(1, 4); edits > 0 && !text.empty(); --edits) {
      const size_t at = static_cast<size_t>(random.uniform_int(0, static_cast<int64_t>(text.size()) - 1));
      switch (random.uniform_int(0, 3)) {
        case 0:
          text[at] = static_cast<char>(random.next_u32());
          break;
        case 1:
          text.erase(at, static_cast<size_t>(random.uniform_int(1, 20)));
          break;
        case 2:
          text.insert(at, text.substr(static_cast<size_t>(random.uniform_int(0, static_cast<int64_t>(at))), 30));
          break;
        default:
          text.resize(at + 1);
          break;
      }
    }
    try {
      const Manifest manifest = Manifest::parse(text, "m");
      for (size_t i = 0; i < manifest.size(); ++i) ASSERT_FALSE(manifest.file(i).empty());
    } catch (const DataError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace redline::data
