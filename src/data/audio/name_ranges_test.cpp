#include "data/audio/name_ranges.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace redline::data {
namespace {

using Names = std::vector<std::string>;

TEST(NameRanges, ExpandAsAShellDoes) {
  EXPECT_EQ(expand_braces("plain.tar"), Names{"plain.tar"});
  EXPECT_EQ(expand_braces("a_{0..2}.tar"), (Names{"a_0.tar", "a_1.tar", "a_2.tar"}));
  EXPECT_EQ(expand_braces("{08..10}"), (Names{"08", "09", "10"}));
  EXPECT_EQ(expand_braces("{3..1}"), (Names{"3", "2", "1"}));
  EXPECT_EQ(expand_braces("{0..9..4}"), (Names{"0", "4", "8"}));
  EXPECT_EQ(expand_braces("{-1..1}"), (Names{"-1", "0", "1"}));
  EXPECT_EQ(expand_braces("x{a,b{1..2}}y"), (Names{"xay", "xb1y", "xb2y"}));
  EXPECT_EQ(expand_braces("{a,b}/{0..1}"), (Names{"a/0", "a/1", "b/0", "b/1"}));
  EXPECT_EQ(expand_braces("{a}{0..1}"), (Names{"{a}0", "{a}1"}));
  EXPECT_EQ(expand_braces("open{0..1"), Names{"open{0..1"});
  EXPECT_EQ(expand_braces(""), Names{""});
}

TEST(NameRanges, KnowNemosStandIns) {
  for (const char* text :
       {"audio__OP_0..2_CL_.tar", "audio_(0..2).tar", "audio_[0..2].tar", "audio_<0..2>.tar", "audio_{0..2}.tar"}) {
    EXPECT_EQ(expand_names(text), (Names{"audio_0.tar", "audio_1.tar", "audio_2.tar"})) << text;
  }
  EXPECT_EQ(expand_names("bucket_OP_1..2_CL_/audio__OP_0..1_CL_.tar"),
            (Names{"bucket1/audio_0.tar", "bucket1/audio_1.tar", "bucket2/audio_0.tar", "bucket2/audio_1.tar"}));
  EXPECT_EQ(expand_names("../clips (new)/a.json"), Names{"../clips (new)/a.json"})
      << "no range: parentheses are part of the name";
  EXPECT_EQ(expand_names("x (1)/a_OP_1,2_CL_.json"), (Names{"x (1)/a1.json", "x (1)/a2.json"}));
}

TEST(NameRanges, RefuseBombs) {
  EXPECT_THROW(expand_braces("{0..99999999}"), ConfigError);
  EXPECT_THROW(expand_braces("{0..999}{0..999}{0..999}"), ConfigError);
  EXPECT_THROW(expand_braces("{0..9223372036854775807}"), ConfigError);
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "{a,";
  for (int i = 0; i < 100; ++i) deep += "b}";
  EXPECT_THROW(expand_braces(deep), ConfigError);
}

}  // namespace
}  // namespace redline::data
