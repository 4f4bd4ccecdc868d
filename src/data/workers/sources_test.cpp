// Manifests, NeMo tars, WebDataset tars and picture tables, read from real files.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <set>

#include "core/error.h"
#include "data/audio/manifest_source.h"
#include "data/audio/tarred_source.h"
#include "data/codecs/image_writer.h"
#include "data/images/image_table.h"
#include "data/images/web_dataset_source.h"
#include "data/testing/audio_files.h"
#include "data/workers/concat_source.h"

namespace redline::data {
namespace {

namespace ta = testing_audio;
using Slot = measure::StageClock::Slot;

std::vector<float> audio_of(const Source& source, int64_t index) {
  Slot slot;
  ReadResult result = source.read(index, slot);
  if (auto* bad = std::get_if<BadSample>(&result)) {
    ADD_FAILURE() << bad->name << ": " << bad->reason;
    return {};
  }
  const auto samples = std::get<Sample>(result).find("audio")->as<float>();
  return {samples.begin(), samples.end()};
}

std::string reason_of(const Source& source, int64_t index) {
  Slot slot;
  ReadResult result = source.read(index, slot);
  auto* bad = std::get_if<BadSample>(&result);
  return bad == nullptr ? "" : bad->name + ": " + bad->reason;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4) << i;
}

TEST(ManifestSource, ReadsRelativeFilesSegmentsAndSeveralManifests) {
  ta::TempFolder folder("manifest_source");
  folder.write("wavs/a.wav", encode_wav(ta::tone(1, 1.0), 16000));
  folder.write("b.flac", encode_flac(ta::tone(2, 2.0), 16000));
  folder.write("one.json", ta::manifest_line("wavs/a.wav", 1.0) + ta::manifest_line("b.flac", 0.5, 1.25));
  folder.write("two.json", ta::manifest_line((folder / "wavs/a.wav").string(), 1.0));
  const ManifestSource source({folder / "one.json", folder / "two.json"}, {});
  ASSERT_EQ(source.size(), 3);
  expect_near(audio_of(source, 0), ta::tone(1, 1.0));
  const auto whole = ta::tone(2, 2.0);
  expect_near(audio_of(source, 1), {whole.begin() + 20000, whole.begin() + 28000});
  expect_near(audio_of(source, 2), ta::tone(1, 1.0));
  EXPECT_EQ(source.length(1), 0.5);
  EXPECT_EQ(source.name(1), "b.flac at 1.25 s");
  EXPECT_NE(source.content_key(0), source.content_key(1));
  const uint64_t before = source.content_key(1);
  folder.write("b.flac", encode_flac(ta::tone(3, 2.5), 16000));
  EXPECT_NE(source.content_key(1), before) << "a changed file is other content";
}

TEST(ManifestSource, MeasuresMissingDurationsOnceFromHeaders) {
  ta::TempFolder folder("manifest_durations");
  folder.write("a.wav", encode_wav(ta::tone(1, 1.5), 16000));
  folder.write("b.flac", encode_flac(ta::tone(2, 2.25, 8000), 8000));
  folder.write("m.json", ta::manifest_line("a.wav", -1) + ta::manifest_line("b.flac", -1, 0.25) +
                             ta::manifest_line("a.wav", 0.5) + ta::manifest_line("gone.wav", -1));
  for (int start = 0; start < 2; ++start) {
    const ManifestSource source({folder / "m.json"}, {});
    EXPECT_NEAR(source.length(0), 1.5, 1e-9);
    EXPECT_NEAR(source.length(1), 2.0, 1e-9);
    EXPECT_EQ(source.length(2), 0.5);
    EXPECT_TRUE(std::isnan(source.length(3)));
    EXPECT_TRUE(ta::fs::exists(folder / "m.json.redline.durations"));
    EXPECT_EQ(audio_of(source, 1).size(), 32000u) << "8 kHz becomes 16 kHz";
    folder.write("a.wav", "damaged meanwhile");  // the second start takes what was kept
  }
  folder.write("m.json.redline.durations", "junk");
  folder.write("a.wav", encode_wav(ta::tone(1, 1.0), 16000));
  EXPECT_NEAR(ManifestSource({folder / "m.json"}, {}).length(0), 1.0, 1e-9);
}

TEST(ManifestSource, LostFilesAreBadSamples) {
  ta::TempFolder folder("manifest_bad");
  folder.write("empty.wav", "");
  folder.write("junk.wav", std::string(1000, 'j'));
  folder.write("m.json",
               ta::manifest_line("gone.wav", 1) + ta::manifest_line("empty.wav", 1) + ta::manifest_line("junk.wav", 1));
  const ManifestSource source({folder / "m.json"}, {});
  for (int64_t i = 0; i < 3; ++i) EXPECT_NE(reason_of(source, i), "") << i;
}

// What a manifest must not reach: above its folder, absolute when forbidden, FIFOs, devices, links out of the root.
TEST(ManifestSource, RefusesToLeaveTheRoot) {
  ta::TempFolder folder("manifest_refused");
  folder.write("data/a.wav", encode_wav(ta::tone(1, 1.0), 16000));
  folder.write("outside.wav", encode_wav(ta::tone(2, 1.0), 16000));
  const auto open = [&](const std::string& line, ManifestOptions options = {}) {
    folder.write("data/m.json", line);
    ManifestSource source({folder / "data/m.json"}, options);
    Slot slot;
    return source.read(0, slot);
  };
  EXPECT_THROW(open(ta::manifest_line("../../etc/passwd", 1)), DataError);
  EXPECT_THROW(open(ta::manifest_line("../outside.wav", 1)), DataError);
  EXPECT_THROW(open(ta::manifest_line("x/../../outside.wav", 1)), DataError);
  ManifestOptions no_absolute;
  no_absolute.allow_absolute = false;
  EXPECT_THROW(open(ta::manifest_line((folder / "data/a.wav").string(), 1), no_absolute), DataError);
  EXPECT_NO_THROW(open(ta::manifest_line((folder / "data/a.wav").string(), 1)));
  ASSERT_EQ(::mkfifo((folder / "data/fifo.wav").c_str(), 0600), 0);
  EXPECT_THROW(open(ta::manifest_line("fifo.wav", 1)), DataError);
  EXPECT_THROW(open(ta::manifest_line("/dev/zero", 1)), DataError);
  ta::fs::create_symlink(folder / "outside.wav", folder / "data/link.wav");
  EXPECT_THROW(open(ta::manifest_line("link.wav", 1)), DataError);
  ManifestOptions wider;
  wider.data_root = folder.path();
  EXPECT_TRUE(std::holds_alternative<Sample>(open(ta::manifest_line("../outside.wav", 1), wider)))
      << "data_root widens it";
  EXPECT_TRUE(std::holds_alternative<Sample>(open(ta::manifest_line("a.wav", 1))));
}

void write_tar(const ta::fs::path& path, const std::vector<std::pair<std::string, std::string>>& members) {
  TarWriter tar(posix_file_ops().create(path));
  for (const auto& [name, content] : members) tar.add(name, ta::bytes_of(content));
  tar.finish();
}

TEST(TarredSource, FindsEntriesByNameShardAndSubSegment) {
  ta::TempFolder folder("tarred");
  write_tar(folder / "audio_0.tar",
            {{"x_a.wav", encode_wav(ta::tone(1, 1.0), 16000)}, {"same.wav", encode_wav(ta::tone(2, 1.0), 16000)}});
  write_tar(folder / "audio_1.tar",
            {{"same.wav", encode_wav(ta::tone(3, 1.0), 16000)}, {"extra.flac", encode_flac(ta::tone(4, 1.0), 16000)}});
  folder.write("m.json", ta::manifest_line("x_a.wav", 1.0, 0, 0) + ta::manifest_line("x_a-sub1.wav", 0.25, 0.5, 0) +
                             ta::manifest_line("same.wav", 1.0, 0, 1) + ta::manifest_line("not_there.wav", 1.0, 0, 0) +
                             ta::manifest_line("extra.flac", -1));
  const TarredSource source({folder / "m.json"}, {folder / "audio_0.tar", folder / "audio_1.tar"}, {});
  ASSERT_EQ(source.size(), 4);
  EXPECT_EQ(source.num_without_member(), 1);
  expect_near(audio_of(source, 0), ta::tone(1, 1.0));
  const auto whole = ta::tone(1, 1.0);
  expect_near(audio_of(source, 1), {whole.begin() + 8000, whole.begin() + 12000});
  expect_near(audio_of(source, 2), ta::tone(3, 1.0));
  expect_near(audio_of(source, 3), ta::tone(4, 1.0));
  EXPECT_NEAR(source.length(3), 1.0, 1e-9);
  EXPECT_EQ(source.locality_groups(), (std::vector<int32_t>{0, 0, 1, 1}));
  EXPECT_EQ(source.name(1), "audio_0.tar:x_a.wav at 0.5 s");
  folder.write("other.json", ta::manifest_line("nowhere.wav", 1.0));
  EXPECT_THROW(TarredSource({folder / "other.json"}, {folder / "audio_0.tar"}, {}), DataError);
  EXPECT_THROW(TarredSource({folder / "m.json"}, {folder / "audio_7.tar"}, {}), DataError);
}

TEST(TarredSource, MoreTarsThanStayOpenAreComparedWithTheirIndex) {
  ta::TempFolder folder("many_tars");
  std::vector<ta::fs::path> tars;
  std::string lines;
  for (int i = 0; i < 257; ++i) {  // one more than are kept open
    tars.push_back(folder / ("audio_" + std::to_string(i) + ".tar"));
    write_tar(tars.back(), {{"c" + std::to_string(i) + ".wav", encode_wav(ta::tone(i, 0.01), 16000)}});
    lines += ta::manifest_line("c" + std::to_string(i) + ".wav", 0.01, 0, i);
  }
  folder.write("m.json", lines);
  const TarredSource source({folder / "m.json"}, tars, {});
  ASSERT_EQ(source.size(), 257);
  EXPECT_EQ(reason_of(source, 7), "");
  write_tar(tars[7], {{"c7.wav", encode_wav(ta::tone(7, 0.05), 16000)}});
  EXPECT_NE(reason_of(source, 7).find("audio_7.tar:c7.wav: The tar was changed since its index was read"),
            std::string::npos)
      << reason_of(source, 7);
  ta::fs::remove(tars[8]);
  EXPECT_NE(reason_of(source, 8).find("there is no file"), std::string::npos) << reason_of(source, 8);
  EXPECT_EQ(reason_of(source, 9), "");
}

std::string small_png(uint8_t value) {
  std::vector<uint8_t> pixels(8 * 8 * 3, value);
  return encode_png({pixels.data(), 8, 8, 24});
}

int64_t label_of(const Source& source, int64_t index) {
  Slot slot;
  return std::get<Sample>(source.read(index, slot)).find("label")->as<int64_t>()[0];
}

TEST(WebDatasetSource, GroupsMembersByStem) {
  ta::TempFolder folder("webdataset");
  write_tar(folder / "a-000.tar", {{"s1.wav", encode_wav(ta::tone(1, 1.0), 16000)},
                                   {"s1.json", "{\"duration\": 1.0, \"label\": 4}"},
                                   {"s2.flac", encode_flac(ta::tone(2, 0.5), 16000)},
                                   {"only.txt", "no audio"}});
  const WebDatasetSource audio({folder / "a-000.tar"}, WebKind::Audio);
  ASSERT_EQ(audio.size(), 2);
  expect_near(audio_of(audio, 0), ta::tone(1, 1.0));
  EXPECT_EQ(audio.length(0), 1.0);
  EXPECT_NEAR(audio.length(1), 0.5, 1e-9);
  write_tar(folder / "i-0.tar", {{"p.png", small_png(1)},
                                 {"p.cls", "7"},
                                 {"q.png", small_png(2)},
                                 {"q.json", "{\"label\": 9}"},
                                 {"r.png", small_png(3)},
                                 {"r.cls", "x"}});
  const WebDatasetSource images({folder / "i-0.tar"}, WebKind::Images);
  ASSERT_EQ(images.size(), 3);
  EXPECT_EQ(label_of(images, 0), 7);
  EXPECT_EQ(label_of(images, 1), 9);
  EXPECT_NE(reason_of(images, 2), "") << "a label that is no number";
  EXPECT_THROW(WebDatasetSource({folder / "i-0.tar"}, WebKind::Audio), DataError);
}

TEST(ImageTable, ReadsFoldersCsvAndJsonLines) {
  ta::TempFolder folder("image_table");
  for (const char* name : {"set/cat/1.png", "set/cat/2.PNG", "set/ant/x/3.png", "set/.hidden/4.png"})
    folder.write(name, small_png(1));
  const ImageSource folders(folder / "set", true);
  ASSERT_EQ(folders.size(), 3);
  EXPECT_EQ(folders.classes(), (std::vector<std::string>{"ant", "cat"}));
  EXPECT_EQ(folders.name(0), "ant/x/3.png");
  EXPECT_EQ(label_of(folders, 0), 0);
  EXPECT_EQ(label_of(folders, 2), 1);

  const ImageTable csv =
      ImageTable::parse_csv("label,extra,path\r\n3,,a.png\n 12,\"x,\"\"y\"\"\",\"b,c.png\"\n\n", "t.csv");
  ASSERT_EQ(csv.entries.size(), 2u);
  EXPECT_EQ(csv.entries[1].file, "b,c.png");
  EXPECT_EQ(csv.entries[0].label, 3);
  const ImageTable named = ImageTable::parse_json_lines(
      "{\"path\": \"a.png\", \"label\": \"dog\"}\n{\"file\": \"b.png\", \"class\": \"ant\"}\n", "t.jsonl");
  EXPECT_EQ(named.classes, (std::vector<std::string>{"ant", "dog"}));
  EXPECT_EQ(named.entries[0].label, 1);

  const auto problem = [](auto parse, const char* text) -> std::string {
    try {
      parse(text, "t");
    } catch (const DataError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(problem(ImageTable::parse_csv, "a,b\n1,2\n").substr(0, 4), "t:1:");
  EXPECT_EQ(problem(ImageTable::parse_csv, "path,label\nx\n").substr(0, 4), "t:2:");
  EXPECT_EQ(problem(ImageTable::parse_csv, "path,label\n\"x,1\n").substr(0, 4), "t:2:");
  EXPECT_EQ(problem(ImageTable::parse_json_lines, "{\"path\": \"x\"}").substr(0, 4), "t:1:");
  EXPECT_EQ(problem(ImageTable::parse_json_lines, "{\"path\": 1, \"label\": 2}").substr(0, 4), "t:1:");
  EXPECT_THROW(ImageTable::parse_csv("path,label\n", "t"), DataError);
  EXPECT_THROW(ImageSource(folder / "set/cat", true), DataError) << "no class folders";
  EXPECT_THROW(ImageSource(folder / "nothing", true), DataError);
  folder.write("up.csv", "path,label\n../../etc/passwd,1\n");
  const ImageSource up(folder / "up.csv", true);
  Slot slot;
  EXPECT_THROW(up.read(0, slot), DataError);
}

TEST(ConcatSource, JoinsPartsInOrder) {
  ta::TempFolder folder("concat_source");
  folder.write("a.wav", encode_wav(ta::tone(1, 1.0), 16000));
  folder.write("b.wav", encode_wav(ta::tone(2, 0.5), 16000));
  folder.write("one.json", ta::manifest_line("a.wav", 1.0));
  folder.write("two.json", ta::manifest_line("b.wav", 0.5) + ta::manifest_line("a.wav", 1.0));
  const ConcatSource both(
      {std::make_shared<ManifestSource>(std::vector<ta::fs::path>{folder / "one.json"}, ManifestOptions{}),
       std::make_shared<ManifestSource>(std::vector<ta::fs::path>{folder / "two.json"}, ManifestOptions{})});
  EXPECT_EQ(both.part_sizes(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(both.name(1), "b.wav");
  EXPECT_EQ(both.length(1), 0.5);
  expect_near(audio_of(both, 2), ta::tone(1, 1.0));
}

}  // namespace
}  // namespace redline::data
