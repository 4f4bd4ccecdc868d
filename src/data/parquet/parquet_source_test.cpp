#include "data/parquet/parquet_source.h"

#include <arrow/io/file.h>
#include <gtest/gtest.h>
#include <parquet/column_writer.h>
#include <parquet/file_writer.h>
#include <parquet/schema.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/philox.h"

namespace redline::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class ParquetSourceTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("parquet_test_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string fixture(const std::string& name) { return std::string(REDLINE_FIXTURES) + "/parquet/" + name; }
  static json expected() { return json::parse(read_file(fixture("expected.json"))); }
  static ParquetOptions options(const std::string& path) {
    ParquetOptions result;
    result.path = path;
    result.cache_lengths = false;
    return result;
  }
  ReadResult read(const ParquetSource& source, int64_t index) { return source.read(index, clock_.slot(0)); }
  std::string problem(const ParquetSource& source, int64_t index) {
    auto result = read(source, index);
    return std::holds_alternative<BadSample>(result)
               ? std::get<BadSample>(result).name + ": " + std::get<BadSample>(result).reason
               : "";
  }
  static std::string refusal(const ParquetOptions& wanted) {
    try {
      const ParquetSource source(wanted);
    } catch (const DataError& error) {
      return error.what();
    }
    ADD_FAILURE() << "accepted " << wanted.path;
    return {};
  }

  fs::path folder_;
  measure::StageClock clock_{1};
};

json values_of(const Array& array) {
  json out = json::array();
  for (int64_t i = 0; i < array.numel(); ++i) {
    const auto at = static_cast<size_t>(i);
    switch (array.dtype()) {
      case Dtype::I32:
        out.push_back(array.as<int32_t>()[at]);
        break;
      case Dtype::I64:
        out.push_back(array.as<int64_t>()[at]);
        break;
      case Dtype::F32:
        out.push_back(static_cast<double>(array.as<float>()[at]));
        break;
      case Dtype::F64:
        out.push_back(array.as<double>()[at]);
        break;
      default:
        out.push_back(array.as<uint8_t>()[at] != 0);
    }
  }
  return out;
}

// What pyarrow wrote must come back, row by row, for every layout, encoding and page version.
TEST_F(ParquetSourceTest, ReadsEveryLayoutAsPyarrowWroteIt) {
  const json all = expected();
  for (const auto& [name, rows] : all.items()) {
    const ParquetSource source(options(fixture(name + ".parquet")));
    ASSERT_EQ(source.size(), static_cast<int64_t>(rows.size())) << name;
    EXPECT_EQ(source.num_row_groups(), 4) << name;
    for (int64_t i = 0; i < source.size(); ++i) {
      const json& want = rows[static_cast<size_t>(i)];
      EXPECT_EQ(source.length(i), want.is_null() ? 0 : static_cast<double>(want.size())) << name << " " << i;
      const bool has_null =
          want.is_array() && std::any_of(want.begin(), want.end(), [](const json& x) { return x.is_null(); });
      auto result = read(source, i);
      if (want.is_null() || want.empty() || has_null) {
        const std::string reason = std::get<BadSample>(result).reason;
        EXPECT_EQ(reason, want.is_null() ? "its column 'tokens' is null"
                          : want.empty() ? "its column 'tokens' is an empty list"
                                         : "its column 'tokens' has a null element");
        continue;
      }
      const Sample& sample = std::get<Sample>(result);
      ASSERT_EQ(values_of(*sample.find("tokens")), want) << name << " " << i;
      EXPECT_EQ(sample.find("label")->as<int64_t>()[0], i % 5);
      EXPECT_EQ(sample.find("weight")->as<float>()[0], static_cast<float>(i) / 4);
      EXPECT_EQ(sample.find("id"), nullptr);
      EXPECT_TRUE(sample.find("label")->shape().empty());
    }
  }
}

TEST_F(ParquetSourceTest, RowsAreViewsAndOutliveTheSource) {
  Array row;
  {
    const ParquetSource source(options(fixture("plain_v1.parquet")));
    auto first = read(source, 3), second = read(source, 3);
    row = *std::get<Sample>(first).find("tokens");
    EXPECT_EQ(std::get<Sample>(first).find("weight")->data(), std::get<Sample>(second).find("weight")->data());
  }
  EXPECT_EQ(values_of(row), expected()["plain_v1"][3]);
}

TEST_F(ParquetSourceTest, ReadsTheTwoLevelLegacyForms) {
  using parquet::Repetition;
  using parquet::schema::GroupNode;
  using parquet::schema::PrimitiveNode;
  const auto bare = PrimitiveNode::Make("tokens", Repetition::REPEATED, parquet::Type::INT32);
  const auto two_level = GroupNode::Make("tokens", Repetition::OPTIONAL,
                                         {PrimitiveNode::Make("array", Repetition::REPEATED, parquet::Type::INT32)},
                                         parquet::ConvertedType::LIST);
  const auto tuple =
      GroupNode::Make("tokens", Repetition::REQUIRED,
                      {GroupNode::Make("tokens_tuple", Repetition::REPEATED,
                                       {PrimitiveNode::Make("value", Repetition::OPTIONAL, parquet::Type::INT32)})},
                      parquet::ConvertedType::LIST);
  int number = 0;
  for (const auto& node : {bare, two_level, tuple}) {
    const std::string path = (folder_ / ("legacy" + std::to_string(number++) + ".parquet")).string();
    const auto schema = std::static_pointer_cast<GroupNode>(GroupNode::Make("schema", Repetition::REQUIRED, {node}));
    auto writer = parquet::ParquetFileWriter::Open(*arrow::io::FileOutputStream::Open(path), schema);
    auto* column = static_cast<parquet::Int32Writer*>(writer->AppendRowGroup()->NextColumn());
    const auto full = static_cast<int16_t>(column->descr()->max_definition_level());
    const auto empty = static_cast<int16_t>(number == 2 ? 1 : 0);
    const int16_t def[] = {full, full, full, empty, full}, rep[] = {0, 1, 1, 0, 0};
    const int32_t values[] = {10, 20, 30, 40};
    column->WriteBatch(5, def, rep, values);
    writer->Close();
    const ParquetSource source(options(path));
    ASSERT_EQ(source.size(), 3) << path;
    auto first = read(source, 0), last = read(source, 2);
    EXPECT_EQ(values_of(*std::get<Sample>(first).find("tokens")), (json{10, 20, 30})) << path;
    EXPECT_EQ(values_of(*std::get<Sample>(last).find("tokens")), (json{40})) << path;
    EXPECT_NE(problem(source, 1).find("empty list"), std::string::npos) << path;
  }
}

TEST_F(ParquetSourceTest, BatchesEqualRows) {
  for (const bool widen : {false, true}) {
    for (const uint64_t buffer : {uint64_t{1} << 30, uint64_t{1}}) {  // everything resident; one group at a time
      ParquetOptions wanted = options(fixture("dictionary_v1.parquet"));
      wanted.widen_integers = widen;
      wanted.max_buffer_bytes = buffer;
      const ParquetSource source(wanted);
      BatchPlan plan;
      plan.collate.fields = {
          {"tokens", -1.0, 8, "length", false}, {"label", 0.0, 1, "", false}, {"missing", 0.0, 1, "", true}};
      plan.collate.counted_field = "tokens";
      ASSERT_TRUE(source.can_collate(plan.collate));
      const std::vector<int64_t> indices = {5, 200, 6, 71, 229, 0, 5};
      for (const int64_t max_length : {int64_t{0}, int64_t{7}}) {
        plan.max_length = max_length;
        Batch batch;
        ASSERT_TRUE(source.read_batch(indices, plan, batch, clock_.slot(0)).empty());
        const Array& tokens = *batch.find("tokens");
        EXPECT_EQ(tokens.dtype(), widen ? Dtype::I64 : Dtype::I32);
        EXPECT_EQ(tokens.shape()[1] % 8, 0);
        int64_t items = 0;
        for (size_t r = 0; r < indices.size(); ++r) {
          auto sample = read(source, indices[r]);
          json want = values_of(*std::get<Sample>(sample).find("tokens"));
          if (max_length > 0 && want.size() > 7) want.erase(want.begin() + 7, want.end());
          EXPECT_EQ(batch.find("length")->as<int64_t>()[r], static_cast<int64_t>(want.size()));
          items += static_cast<int64_t>(want.size());
          while (want.size() < static_cast<size_t>(tokens.shape()[1])) want.push_back(-1);
          const auto row_bytes = tokens.num_bytes() / indices.size();
          const Array row = Array::wrap(tokens.dtype(), {tokens.shape()[1]},
                                        {tokens.memory(), static_cast<std::byte*>(tokens.data()) + r * row_bytes});
          EXPECT_EQ(values_of(row), want);
          EXPECT_EQ(batch.find("label")->as<int64_t>()[r], indices[r] % 5);
        }
        EXPECT_EQ(batch.items, items);
        EXPECT_EQ(batch.padded_items, tokens.numel());
      }
    }
  }
  CollateSpec unknown;
  unknown.fields = {{"nothing", 0.0, 1, "", false}};
  EXPECT_FALSE(ParquetSource(options(fixture("dictionary_v1.parquet"))).can_collate(unknown));
}

TEST_F(ParquetSourceTest, BadRowsOfABatchAreNamed) {
  const ParquetSource source(options(fixture("null_elements.parquet")));
  BatchPlan plan;
  plan.collate.fields = {{"tokens", 0.0, 1, "", false}};
  Batch batch;
  const auto bad = source.read_batch(std::vector<int64_t>{0, 3, 5, 7, 8}, plan, batch, clock_.slot(0));
  ASSERT_EQ(bad.size(), 3u);
  EXPECT_EQ(bad[0].position, 1u);
  EXPECT_EQ(bad[0].bad.name, "null_elements.parquet row 3");
  EXPECT_EQ(bad[0].bad.reason, "its column 'tokens' is null");
  EXPECT_EQ(bad[1].bad.reason, "its column 'tokens' is an empty list");
  EXPECT_EQ(bad[2].bad.reason, "its column 'tokens' has a null element");
}

TEST_F(ParquetSourceTest, ReadsFoldersAndGlobsInOrder) {
  fs::create_directories(folder_ / "b");
  fs::copy_file(fixture("plain_v1.parquet"), folder_ / "a.parquet");
  fs::copy_file(fixture("dictionary_v1.parquet"), folder_ / "b/c.parquet");
  fs::copy_file(fixture("floats.parquet"), folder_ / "_hidden.parquet");
  std::ofstream(folder_ / "note.txt") << "no";
  const ParquetSource source(options(folder_.string()));
  EXPECT_EQ(source.size(), 460);
  EXPECT_EQ(source.name(229), "a.parquet row 229");
  EXPECT_EQ(source.name(230), "b/c.parquet row 0");
  auto row = read(source, 233);
  EXPECT_EQ(values_of(*std::get<Sample>(row).find("tokens")), expected()["dictionary_v1"][3]);
  const auto groups = source.locality_groups();
  EXPECT_EQ(groups[69], 0);
  EXPECT_EQ(groups[70], 1);
  EXPECT_EQ(groups[459], 7);
  const ParquetSource globbed(options((folder_ / "[ab]*.parquet").string()));
  EXPECT_EQ(globbed.size(), 230);
  EXPECT_NE(globbed.fingerprint(), source.fingerprint());
}

TEST_F(ParquetSourceTest, AFileOutsideTheFolderIsRefused) {
  fs::create_symlink(fixture("plain_v1.parquet"), folder_ / "x.parquet");
  EXPECT_NE(refusal(options(folder_.string())).find("leads out of"), std::string::npos);
}

TEST_F(ParquetSourceTest, MistakesAreSaidClearly) {
  EXPECT_NE(refusal(options((folder_ / "none.parquet").string())).find("there is no file"), std::string::npos);
  EXPECT_NE(refusal(options(folder_.string())).find("No Parquet file was found"), std::string::npos);
  EXPECT_NE(refusal(options(fixture("no_rows.parquet"))).find("holds no rows"), std::string::npos);
  ParquetOptions wanted = options(fixture("plain_v1.parquet"));
  wanted.columns = {"toknes"};
  EXPECT_NE(refusal(wanted).find("does not exist. Usable columns: 'tokens', 'label', 'weight'."), std::string::npos);
  wanted.columns = {"id"};
  EXPECT_NE(refusal(wanted).find("does not hold numbers"), std::string::npos);
  wanted = options(fixture("nested.parquet"));
  wanted.columns = {"tokens"};
  EXPECT_NE(refusal(wanted).find("list of lists"), std::string::npos);
  EXPECT_NE(refusal(options(fixture("strings.parquet"))).find("no column of numbers"), std::string::npos);
  fs::copy_file(fixture("plain_v1.parquet"), folder_ / "a.parquet");
  fs::copy_file(fixture("floats.parquet"), folder_ / "b.parquet");
  EXPECT_NE(refusal(options(folder_.string())).find("is a list of int32 in"), std::string::npos);
  wanted = options(fixture("plain_v1.parquet"));
  wanted.length_column = "weight";
  EXPECT_NE(refusal(wanted).find("neither a list nor an integer"), std::string::npos);
}

TEST_F(ParquetSourceTest, CutAndForeignFilesAreNamed) {
  const std::string bytes = read_file(fixture("plain_v1.parquet"));
  const auto write = [&](const std::string& content) {
    std::ofstream(folder_ / "x.parquet", std::ios::binary | std::ios::trunc) << content;
    return refusal(options((folder_ / "x.parquet").string()));
  };
  EXPECT_NE(write(bytes.substr(0, bytes.size() / 2)).find("cut off"), std::string::npos);
  EXPECT_NE(write(bytes.substr(0, bytes.size() - 4) + "PARE").find("it is encrypted"), std::string::npos);
  EXPECT_NE(write("").find("too short"), std::string::npos);
  EXPECT_NE(write("hello, this is not a table at all").find("not a Parquet file"), std::string::npos);
  std::string damaged = bytes;
  for (size_t i = bytes.size() - 200; i < bytes.size() - 150; ++i) damaged[i] = static_cast<char>(0xFF);
  EXPECT_NE(write(damaged).find("x.parquet' cannot be used: its footer is damaged"), std::string::npos);
}

TEST_F(ParquetSourceTest, ADamagedRowGroupCostsItsRowsOnly) {
  std::string bytes = read_file(fixture("dictionary_v1.parquet"));
  for (size_t i = 20; i < 60; ++i) bytes[i] = static_cast<char>(0xFF);  // in the first row group
  std::ofstream(folder_ / "x.parquet", std::ios::binary) << bytes;
  ParquetOptions wanted = options((folder_ / "x.parquet").string());
  const ParquetSource source(wanted);
  EXPECT_NE(problem(source, 3).find("x.parquet row 3: its row group cannot be decoded"), std::string::npos);
  EXPECT_EQ(source.length(3), 1);
  EXPECT_EQ(problem(source, 100), "");
}

TEST_F(ParquetSourceTest, AFileThatChangesIsNoticed) {
  const fs::path path = folder_ / "x.parquet";
  fs::copy_file(fixture("dictionary_v1.parquet"), path);
  const ParquetSource source(options(path.string()));
  fs::copy_file(fixture("v2_zstd.parquet"), path, fs::copy_options::overwrite_existing);
  EXPECT_NE(problem(source, 3).find("was changed"), std::string::npos);
}

TEST_F(ParquetSourceTest, LengthsAreKeptBesideTheFile) {
  const fs::path path = folder_ / "x.parquet", side = folder_ / ".x.parquet.redline.len";
  fs::copy_file(fixture("nulls.parquet"), path);
  ParquetOptions wanted = options(path.string());
  wanted.cache_lengths = true;
  const auto all = [&] {
    const ParquetSource source(wanted);
    std::vector<double> lengths;
    for (int64_t i = 0; i < source.size(); ++i) lengths.push_back(source.length(i));
    return lengths;
  };
  const auto first = all();
  ASSERT_TRUE(fs::exists(side));
  EXPECT_EQ(all(), first);
  std::string bytes = read_file(side);
  bytes.back() ^= 1;
  std::ofstream(side, std::ios::binary | std::ios::trunc) << bytes;
  EXPECT_EQ(all(), first) << "a damaged side file is not believed";
}

TEST_F(ParquetSourceTest, AnIntegerColumnMayHoldTheLengths) {
  ParquetOptions wanted = options(fixture("plain_v1.parquet"));
  wanted.columns = {"tokens"};
  wanted.length_column = "label";
  const ParquetSource source(wanted);
  EXPECT_EQ(source.length(8), 3);
  EXPECT_EQ(source.columns().size(), 2u);
}

TEST_F(ParquetSourceTest, ScalarTablesHaveLengthOne) {
  const ParquetSource source(options(fixture("scalars.parquet")));
  EXPECT_EQ(source.length(2), 1);
  EXPECT_NE(problem(source, 1).find("'a' is null"), std::string::npos);
  EXPECT_EQ(problem(source, 2), "");
}

TEST_F(ParquetSourceTest, TheCacheKeepsItsLimitAndServesManyThreads) {
  ParquetOptions wanted = options(fixture("plain_v1.parquet"));
  wanted.columns = {"tokens"};
  const json rows = expected()["plain_v1"];
  const uint64_t all = ParquetSource(wanted).table_bytes();
  wanted.max_buffer_bytes = all / 5;
  const ParquetSource source(wanted);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  measure::StageClock clock(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      KeyedStream draw(1, 0, static_cast<uint64_t>(t), 0);
      for (int i = 0; i < 300; ++i) {
        const int64_t index = draw.uniform_int(0, 229);
        auto result = source.read(index, clock.slot(t));
        const Sample& sample = std::get<Sample>(result);
        wrong += static_cast<size_t>(sample.find("tokens")->numel()) != rows[static_cast<size_t>(index)].size();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  const auto stats = source.cache_stats();
  EXPECT_LE(stats.bytes, wanted.max_buffer_bytes);
  EXPECT_GT(stats.misses, 4);
  EXPECT_EQ(stats.hits + stats.misses, 1200);
}

}  // namespace
}  // namespace redline::data
