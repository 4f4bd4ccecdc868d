// Pictures that are unusual or wrong, and pictures as arrays, from file to batch.
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/safetensors_header.h"
#include "data/build_loader.h"
#include "data/codecs/image_writer.h"
#include "data/files/npy.h"
#include "data/images/array_source.h"
#include "data/images/image_table.h"
#include "data/images/image_transforms.h"
#include "data/kinds.h"
#include "data/testing/audio_files.h"
#include "data/testing/augment_fixtures.h"
#include "data/testing/image_fixtures.h"

namespace redline::data {
namespace {

using testing_audio::TempFolder;

std::string stored_file(const nlohmann::json& one) {
  return image_fixture("../augment/" + one.at("file").get<std::string>());
}

Array decode_as(const std::string& bytes, bool upright) {
  ImageRequest request;
  request.upright = upright;
  return std::get<Array>(decode_image(image_bytes(bytes), "", request));
}

TEST(Orientation, PicturesAreTurnedUprightAsPillowDoes) {
  const AugmentFixtures fixtures;
  int turned = 0;
  for (const auto& one : fixtures.of("upright")) {
    const std::string bytes = stored_file(one);
    const Array upright = decode_as(bytes, true);
    EXPECT_LE(largest_difference(upright, fixtures.picture(one)), 1) << one.dump();
    const ImageInfo info = std::get<ImageInfo>(probe_image(image_bytes(bytes), ""));
    EXPECT_EQ(info.width, upright.shape()[1]);
    EXPECT_EQ(info.height, upright.shape()[0]);
    turned += largest_difference(upright, decode_as(bytes, false)) > 0;
  }
  EXPECT_EQ(turned, 9);  // all but the two that are upright already
  for (const auto& one : fixtures.of("stored"))
    EXPECT_LE(largest_difference(decode_as(stored_file(one), false), fixtures.picture(one)), 1) << one.dump();
}

// A box is one of the upright picture, whatever decodes it.
TEST(Orientation, BoxesAreOfTheUprightPicture) {
  const AugmentFixtures fixtures;
  const auto one = fixtures.of("upright").at(5);
  const Array upright = decode_as(stored_file(one), true);
  for (const ImageDecode mode : {ImageDecode::Exact, ImageDecode::Fast}) {
    ImageRequest request;
    request.decode = mode;
    request.resize = ResizeRequest{10, 12, CropBox{2, 3, 22, 27}, ResizeFilter::Bilinear, false};
    const Array cut = std::get<Array>(decode_image(image_bytes(stored_file(one)), "", request));
    const Array plain = resize_rgb(rgb_view(upright), *request.resize);
    EXPECT_LE(largest_difference(cut, plain), mode == ImageDecode::Exact ? 0 : 40);
  }
}

TEST(Orientation, NonsenseIsUpright) {
  const AugmentFixtures fixtures;
  std::string bytes = stored_file(fixtures.of("upright").at(5));
  const Array stored = decode_as(bytes, false);
  const size_t exif = bytes.find("Exif");
  ASSERT_NE(exif, std::string::npos);
  for (size_t at = exif; at < exif + 30; ++at) {  // any byte of it damaged: a picture, and never a crash
    std::string damaged = bytes;
    damaged[at] = '\xEE';
    EXPECT_TRUE(std::holds_alternative<Array>(decode_image(image_bytes(damaged), "", {}))) << at;
  }
  std::string beyond = bytes;
  beyond.replace(exif + 10, 4, "\xFF\xFF\xFF\x7F", 4);  // a directory beyond the end
  EXPECT_EQ(largest_difference(decode_as(beyond, true), stored), 0);
}

// The upper byte of each value, which is what eight bits of it are; Pillow's own conversion of 16-bit grey clips it.
TEST(SixteenBits, BecomeTheirUpperEight) {
  const AugmentFixtures fixtures;
  ASSERT_EQ(fixtures.of("sixteen").size(), 2u);
  for (const auto& one : fixtures.of("sixteen"))
    EXPECT_EQ(largest_difference(decode_as(stored_file(one), true), fixtures.picture(one)), 0) << one.dump();
}

Array coloured(int red, int32_t size = 20) {
  Array image = Array::empty(Dtype::U8, {size, size, 3});
  for (int64_t i = 0; i < image.numel(); ++i)
    image.as<uint8_t>()[static_cast<size_t>(i)] = static_cast<uint8_t>((red + 40 * (i % 3)) % 256);
  return image;
}

void write_class(const TempFolder& folder, const std::string& name, int count) {
  for (int i = 0; i < count; ++i)
    folder.write(name + "/" + std::to_string(i) + ".png", encode_png(rgb_view(coloured(10 * i))));
}

DatasetConfig pictures_in(const std::filesystem::path& path, int64_t batch = 4) {
  DatasetConfig config;
  config.path = config::Node::scalar(path.string(), true);
  config.image_size = 16;
  config.batch_size = batch;
  config.micro_batch_size = batch;
  config.max_bad_fraction = 0.5;
  MachineFacts machine;
  config.resolve(machine, 1);
  return config;
}

TaskNeeds needs_of(std::shared_ptr<const Kind> kind, bool training = true) {
  TaskNeeds needs;
  needs.kind = std::move(kind);
  needs.training = training;
  return needs;
}

TEST(BadPictures, AreNamedAndReplacedAndNothingElseIsLost) {
  TempFolder folder("bad_pictures");
  write_class(folder, "cats", 6);
  write_class(folder, "dogs", 6);
  folder.write("cats/empty.jpg", "");
  folder.write("dogs/text.png", "this is no picture");
  folder.write("dogs/cut.png", encode_png(rgb_view(coloured(3))).substr(0, 60));
  const TempFolder run("bad_pictures_run");
  TaskNeeds needs = needs_of(image_kind());
  needs.run_directory = run.path();
  const auto loader = build_loader(pictures_in(folder.path(), 15), needs);
  const auto batch = loader->next();
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(batch->sample_ids.size(), 15u);
  EXPECT_EQ(batch->num_bad, 3);
  EXPECT_EQ(batch->find("image")->shape(), (Shape{15, 3, 16, 16}));
  std::ifstream file(run / "bad_samples.jsonl");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  for (const char* words :
       {"empty.jpg", "0 bytes", "text.png", "allowed formats are JPEG and PNG", "cut.png", "truncated"})
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
}

TEST(Classes, MustBeTheSameInBothParts) {
  TempFolder train("classes_train"), same("classes_same"), fewer("classes_fewer");
  for (const char* name : {"ants", "bees", "cats"}) write_class(train, name, 2);
  for (const char* name : {"ants", "cats"}) {
    write_class(same, name, 2);
    write_class(fewer, name, 2);
  }
  std::filesystem::create_directories(same / "bees");
  const auto kind = image_kind();
  build_loader(pictures_in(train.path()), needs_of(kind));
  const auto loader = build_loader(pictures_in(same.path()), needs_of(kind, false));
  EXPECT_EQ(loader->next()->find("label")->as<int64_t>()[3], 2) << "cats are cats";
  try {
    build_loader(pictures_in(fewer.path()), needs_of(kind, false));
    FAIL() << "labels would mean other classes";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("missing there: bees"), std::string::npos) << error.what();
  }
  build_loader(pictures_in(fewer.path()), needs_of(image_kind(), false));  // alone it is a data set like any other
}

TEST(Classes, OfOnePictureStillTrain) {
  TempFolder folder("lonely_class");
  write_class(folder, "many", 5);
  write_class(folder, "one", 1);
  const auto batch = build_loader(pictures_in(folder.path(), 6), needs_of(image_kind()))->next();
  EXPECT_EQ(batch->find("label")->as<int64_t>()[5], 1);
}

TEST(Grey, IsOneChannelOfTheGreyPicture) {
  TempFolder folder("grey_pictures");
  write_class(folder, "a", 4);
  for (const char* cache : {"none", "memory"}) {
    DatasetConfig config = pictures_in(folder.path());
    config.image_channels = 1;
    config.cache = cache;
    config.image_mean = {0.5};
    config.image_std = {0.25};
    const auto batch = build_loader(config, needs_of(image_kind()))->next();
    EXPECT_EQ(batch->find("image")->shape(), (Shape{4, 1, 16, 16}));
    // 10, 50, 90: (10 * 19595 + 50 * 38470 + 90 * 7471) / 65536 = 42.6
    EXPECT_NEAR(batch->find("image")->as<float>()[256], (43.0 / 255.0 - 0.5) / 0.25, 1e-5) << cache;
  }
}

TEST(Augment, ReachesTheBatchInTimmsOrder) {
  TempFolder folder("augment_batch");
  write_class(folder, "a", 4);
  write_class(folder, "b", 4);
  DatasetConfig config = pictures_in(folder.path(), 8);
  config.augment.emplace();
  config.augment->auto_augment = "rand-m9-mstd0.5-inc1";
  config.augment->reprob = 1.0;
  config.augment->remode = "const";
  config.augment->mixup = 0.8;
  std::vector<std::vector<float>> seen;
  for (const int workers : {0, 1, 3}) {
    config.num_workers = workers;
    const auto batch = build_loader(config, needs_of(image_kind()))->next();
    ASSERT_NE(batch->find("mixed_share"), nullptr);
    EXPECT_EQ(batch->find("mixed_label")->as<int64_t>()[0], 1);
    const auto image = batch->find("image")->as<float>();
    seen.emplace_back(image.begin(), image.end());
  }
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
  config.augment->mixup = 0.0;
  const auto plain = build_loader(config, needs_of(image_kind()))->next();
  EXPECT_EQ(plain->find("mixed_share"), nullptr);
  const auto image = plain->find("image")->as<float>();
  // Zeros are the mean colour only after normalisation: erased there, not before.
  EXPECT_GT(std::count(image.begin(), image.end(), 0.0f), 100);
}

std::string npy_of(const Array& array) {
  return npy_head(array.dtype(), array.shape()) +
         std::string(static_cast<const char*>(array.data()), array.num_bytes());
}

Array counted(Dtype dtype, Shape shape) {
  Array array = Array::zeros(dtype, std::move(shape));
  for (int64_t i = 0; i < array.numel(); ++i) {
    const auto at = static_cast<size_t>(i);
    if (dtype == Dtype::F32) array.as<float>()[at] = static_cast<float>(i) * 0.5f;
    if (dtype == Dtype::I64) array.as<int64_t>()[at] = i;
    if (dtype == Dtype::U8) array.as<uint8_t>()[at] = static_cast<uint8_t>(i);
  }
  return array;
}

TEST(Arrays, OfFloatsAreTakenAsTheyAre) {
  TempFolder folder("float_arrays");
  const Array images = counted(Dtype::F32, {5, 2, 16, 16}), labels = counted(Dtype::I64, {5});
  folder.write("x.npy", npy_of(images));
  folder.write("x_labels.npy", npy_of(labels));
  std::vector<StoredEntry> entries(2);
  entries[0].name = "images", entries[0].shape = images.shape();
  entries[1].name = "labels", entries[1].shape = labels.shape(), entries[1].type = StoredType::I64;
  place_entries(entries);
  std::string file = header_bytes(entries, {});
  const size_t begin = file.size();
  file.resize(begin + images.num_bytes() + labels.num_bytes());
  std::memcpy(file.data() + begin + entries[0].begin, images.data(), images.num_bytes());
  std::memcpy(file.data() + begin + entries[1].begin, labels.data(), labels.num_bytes());
  folder.write("x.safetensors", file);
  for (const char* name : {"x.npy", "x.safetensors"}) {
    DatasetConfig config = pictures_in(folder / name, 5);
    config.image_channels = 1;  // checked below: two are stored
    EXPECT_THROW(
        {
          const auto loader = build_loader(config, needs_of(image_kind()));
          loader->next();
        },
        DataError);
    const ArraySource source(folder / name);
    EXPECT_TRUE(source.floats());
    measure::StageClock clock(1);
    const auto sample = std::get<Sample>(source.read(3, clock.slot(0)));
    EXPECT_EQ(sample.find("image")->shape(), (Shape{2, 16, 16}));
    EXPECT_EQ(sample.find("image")->as<float>()[1], (3 * 512 + 1) * 0.5f);
    EXPECT_EQ(sample.find("label")->as<int64_t>()[0], 3);
  }
}

TEST(Arrays, TakeTheWayOfTheirKind) {
  TempFolder folder("kinds_of_arrays");
  folder.write("floats.npy", npy_of(counted(Dtype::F32, {6, 3, 16, 16})));
  folder.write("bytes.npy", npy_of(counted(Dtype::U8, {6, 20, 24, 3})));
  folder.write("grey.npy", npy_of(counted(Dtype::U8, {6, 20, 24})));
  folder.write("labels.npy", npy_of(counted(Dtype::I64, {6})));
  const auto floats = build_loader(pictures_in(folder / "floats.npy", 6), needs_of(image_kind()))->next();
  EXPECT_EQ(floats->find("image")->as<float>()[10], 5.0f) << "not normalised again";
  DatasetConfig flipped = pictures_in(folder / "floats.npy", 6);
  flipped.image_flip = 1.0;
  EXPECT_EQ(build_loader(flipped, needs_of(image_kind()))->next()->find("image")->as<float>()[10], 2.5f);
  for (const char* name : {"bytes.npy", "grey.npy"}) {
    const auto batch = build_loader(pictures_in(folder / name, 6), needs_of(image_kind()))->next();
    EXPECT_EQ(batch->find("image")->shape(), (Shape{6, 3, 16, 16})) << name;
    EXPECT_LT(std::abs(batch->find("image")->as<float>()[0]), 3.0f) << name;
  }
  DatasetConfig augmented = pictures_in(folder / "floats.npy", 6);
  augmented.augment.emplace().auto_augment = "rand-m9";
  EXPECT_THROW(build_loader(augmented, needs_of(image_kind())), ConfigError);
}

TEST(Arrays, SayWhatDoesNotFit) {
  TempFolder folder("wrong_arrays");
  const auto words = [&](const std::string& name) {
    try {
      const ArraySource source(folder / name);
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto expect = [&](const std::string& name, const char* what) {
    EXPECT_NE(words(name).find(what), std::string::npos) << name << ": " << words(name);
  };
  folder.write("alone/x.npy", npy_of(counted(Dtype::F32, {4, 3, 2, 2})));
  expect("alone/x.npy", "labels were not found");
  folder.write("few/x.npy", npy_of(counted(Dtype::F32, {4, 3, 2, 2})));
  folder.write("few/labels.npy", npy_of(counted(Dtype::I64, {3})));
  expect("few/x.npy", "expected [4], one for each picture");
  folder.write("few/flat.npy", npy_of(counted(Dtype::F32, {4, 12})));
  expect("few/flat.npy", "expected pictures as float32 [N, C, H, W]");
  const std::string whole = npy_of(counted(Dtype::F32, {4, 3, 2, 2}));
  folder.write("few/cut.npy", whole.substr(0, whole.size() - 8));
  expect("few/cut.npy", "truncated");
  folder.write("few/text.npy", "no array at all");
  expect("few/text.npy", "no .npy file");
  std::string fortran = whole;
  fortran.replace(fortran.find("False"), 5, "True ");
  folder.write("few/fortran.npy", fortran);
  expect("few/fortran.npy", "Fortran order");
  std::string objects = whole;
  objects.replace(objects.find("<f4"), 3, "|O8");
  folder.write("few/objects.npy", objects);
  expect("few/objects.npy", "numbers are of type");
  folder.write("few/none.safetensors", header_bytes({}, {}));
  expect("few/none.safetensors", "no tensor 'images'");
  Array labels = counted(Dtype::I64, {4});
  labels.as<int64_t>()[2] = -1;
  folder.write("negative/x.npy", whole);
  folder.write("negative/labels.npy", npy_of(labels));
  expect("negative/x.npy", "the label of picture 2 is -1");
}

TEST(Arrays, ARowThatIsNotFiniteIsABadSample) {
  TempFolder folder("nan_arrays");
  Array images = counted(Dtype::F32, {4, 3, 16, 16});
  images.as<float>()[800] = NAN;
  folder.write("x.npy", npy_of(images));
  folder.write("labels.npy", npy_of(counted(Dtype::I64, {4})));
  const auto batch = build_loader(pictures_in(folder / "x.npy"), needs_of(image_kind()))->next();
  EXPECT_EQ(batch->num_bad, 1);
  for (const float v : batch->find("image")->as<float>()) ASSERT_TRUE(std::isfinite(v));
}

}  // namespace
}  // namespace redline::data
