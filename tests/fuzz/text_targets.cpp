#include <cmath>

#include "core/error.h"
#include "data/audio/manifest.h"
#include "data/images/image_table.h"
#include "target.h"

namespace redline::fuzz {

namespace {

using namespace redline::data;

bool read_manifest(std::span<const std::byte> bytes) {
  try {
    const data::Manifest manifest = data::Manifest::parse(text_of(bytes), "fuzz.json");
    require(manifest.size() > 0, "an accepted manifest has entries");
    for (size_t i = 0; i < manifest.size(); ++i) {
      require(!manifest.file(i).empty(), "every entry names a file");
      require(std::isnan(manifest.duration(i)) || (manifest.duration(i) >= 0 && std::isfinite(manifest.duration(i))),
              "durations are numbers");
      require(std::isfinite(manifest.offset(i)) && manifest.offset(i) >= 0, "offsets are numbers");
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool read_index(std::span<const std::byte> bytes) {
  bool accepted = false;
  for (const bool csv : {false, true}) {
    try {
      const ImageTable table = csv ? ImageTable::parse_csv(text_of(bytes), "fuzz.csv")
                                   : ImageTable::parse_json_lines(text_of(bytes), "fuzz.jsonl");
      for (const auto& entry : table.entries) require(!entry.file.empty(), "every entry names a file");
      accepted = true;
    } catch (const Error&) {
    }
  }
  return accepted;
}

std::vector<std::string> manifest_seeds() {
  return {
      "{\"audio_filepath\": \"a/b.wav\", \"duration\": 3.25, \"text\": \"hello\", \"offset\": "
      "1.5}\n{\"audio_filepath\": \"c.flac\", \"duration\": 2}\n",
      "{\"audio_filename\": \"x-sub1.flac\", \"duration\": 1e1, \"shard_id\": 3, \"speaker\": null, \"nested\": "
      "{\"a\": [1, 2, {}]}}\n\n",
      "{\"audio_filepath\": \"\\u00fc\\\"n.wav\"}\r\n{\"audio_filepath\": \"y.wav\", \"duration\": 0.001}"};
}

std::vector<std::string> index_seeds() {
  return {"path,label\na.jpg,3\n\"b,c.png\",4\n",
          "{\"path\": \"a.jpg\", \"label\": 3}\n{\"path\": \"b.jpg\", \"label\": 1}\n",
          "filename,class\nx.png,cat\ny.png,dog\n", "{\"file\": \"a.jpg\", \"cls\": \"cat\"}\n"};
}

}  // namespace

std::vector<Target> text_targets() {
  return {{"manifest", read_manifest, manifest_seeds, {}}, {"image_index", read_index, index_seeds, {}}};
}

}  // namespace redline::fuzz
