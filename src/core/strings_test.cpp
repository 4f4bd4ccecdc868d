#include "core/strings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace redline {
namespace {

TEST(Strings, SplitJoinTrim) {
  EXPECT_EQ(split("a.b..c", '.'), (std::vector<std::string>{"a", "b", "", "c"}));
  EXPECT_EQ(split("", '.'), (std::vector<std::string>{""}));
  EXPECT_EQ(join(std::vector<std::string>{"a", "b", "c"}, ", "), "a, b, c");
  EXPECT_EQ(join({}, ", "), "");
  EXPECT_EQ(trim(" \t a b \r\n"), "a b");
  EXPECT_TRUE(starts_with("trainer.precision", "trainer."));
  EXPECT_FALSE(starts_with("tr", "trainer."));
  EXPECT_TRUE(ends_with("x.yaml", ".yaml"));
  EXPECT_FALSE(ends_with("l", ".yaml"));
  EXPECT_EQ(to_lower("BF16-Mixed"), "bf16-mixed");
}

TEST(Strings, PrintableLeavesTextAndDefusesTheRest) {
  EXPECT_EQ(printable("plain 中文 é 🎧 \\ ok"), "plain 中文 é 🎧 \\ ok");
  EXPECT_EQ(printable("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(printable(std::string_view("a\0b\n\r\t\x7f", 7)), "a\\x00b\\x0a\\x0d\\x09\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");             // CSI as a C1 character
  EXPECT_EQ(printable("\x9b"), "\\x9b");  // and as a bare byte
  EXPECT_EQ(printable("\xe2\x80\xae"
                      "txt.exe"),
            "\\xe2\\x80\\xaetxt.exe");                               // right-to-left override
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");                    // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond Unicode
  EXPECT_EQ(printable("\xe4\xb8"), "\\xe4\\xb8");                    // cut off
}

TEST(Strings, JsonQuote) {
  EXPECT_EQ(json_quote("a\"b\\c\n\t\x01"), R"("a\"b\\c\n\t\u0001")");
  EXPECT_EQ(json_quote("中"), "\"中\"");
  EXPECT_EQ(json_quote("\xff"), "\"\\ufffd\"");
}

TEST(Strings, EditDistanceTable) {
  struct Case {
    const char *a, *b;
    size_t distance;
  };
  for (const Case& c : {Case{"", "", 0},
                        {"abc", "", 3},
                        {"", "ab", 2},
                        {"kitten", "sitting", 3},
                        {"abc", "abc", 0},
                        {"ab", "ba", 1},
                        {"num_wrokers", "num_workers", 1},
                        {"ca", "abc", 3},
                        {"precison", "precision", 1}}) {
    EXPECT_EQ(edit_distance(c.a, c.b), c.distance) << c.a << " / " << c.b;
    EXPECT_EQ(edit_distance(c.b, c.a), c.distance) << c.b << " / " << c.a;
  }
}

TEST(Strings, DidYouMean) {
  const std::vector<std::string> names = {"num_workers", "precision", "batch_size", "lr", "max_steps"};
  EXPECT_EQ(did_you_mean("num_worker", names), "num_workers");
  EXPECT_EQ(did_you_mean("Num-Workers", names), "num_workers");
  EXPECT_EQ(did_you_mean("presicion", names), "precision");
  EXPECT_EQ(did_you_mean("batchsize", names), "batch_size");
  EXPECT_EQ(did_you_mean("learning_rate", names), std::nullopt);
  EXPECT_EQ(did_you_mean("x", names), std::nullopt);
  EXPECT_EQ(did_you_mean("", names), std::nullopt);
}

TEST(Strings, Formats) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(uint64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "16 EiB");
  EXPECT_EQ(format_seconds(0), "0 ns");
  EXPECT_EQ(format_seconds(350e-6), "350 us");
  EXPECT_EQ(format_seconds(1.25), "1.25 s");
  EXPECT_EQ(format_seconds(0.0123), "12.3 ms");
  EXPECT_EQ(format_seconds(75), "1 min 15 s");
  EXPECT_EQ(format_seconds(7500), "2 h 05 min");
  EXPECT_EQ(format_seconds(90000), "1 d 01 h");
  EXPECT_EQ(format_seconds(-2), "-2 s");
  EXPECT_EQ(format_count(12345), "12.3 k");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1e6), "1 M");
}

TEST(Strings, ParseBytes) {
  EXPECT_EQ(parse_bytes("1024"), 1024u);
  EXPECT_EQ(parse_bytes("8GiB"), uint64_t{8} << 30);
  EXPECT_EQ(parse_bytes("512 MB"), 512'000'000u);
  EXPECT_EQ(parse_bytes("8g"), uint64_t{8} << 30);
  EXPECT_EQ(parse_bytes("1.5 KiB"), 1536u);
  EXPECT_EQ(parse_bytes("12 B"), 12u);
  for (const char* bad : {"", "-1", "GiB", "8 XB", "8 GiBs", "1e30 TB", "99999999 EiB", "8 i", "nan", "8 GiB 2"}) {
    EXPECT_EQ(parse_bytes(bad), std::nullopt) << bad;
  }
}

TEST(Strings, ParseSeconds) {
  EXPECT_EQ(parse_seconds("180s"), 180.0);
  EXPECT_EQ(parse_seconds("3m"), 180.0);
  EXPECT_EQ(parse_seconds("1h30m"), 5400.0);
  EXPECT_EQ(parse_seconds("00:10:00:00"), 36000.0);
  EXPECT_EQ(parse_seconds("01:02:03"), 3723.0);
  EXPECT_EQ(parse_seconds("2.5"), 2.5);
  EXPECT_EQ(parse_seconds("250 ms"), 0.25);
  EXPECT_EQ(parse_seconds("1 d"), 86400.0);
  for (const char* bad : {"", "s", "-3s", "1h30", "30 1h", "1:2", "a:b:c", "1y"})
    EXPECT_EQ(parse_seconds(bad), std::nullopt) << bad;
}

TEST(Strings, ParseNumbers) {
  EXPECT_EQ(parse_int(" -42 "), -42);
  EXPECT_EQ(parse_int("+7"), 7);
  EXPECT_EQ(parse_int("1_000_000"), 1'000'000);
  EXPECT_EQ(parse_int("9223372036854775807"), INT64_MAX);
  for (const char* bad : {"", "-", "1.0", "0x10", "_1", "1_", "1__0", "9223372036854775808", "--1", "+-1", "1 2"}) {
    EXPECT_EQ(parse_int(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(parse_double("1e-3"), 0.001);
  EXPECT_EQ(parse_double("-.5"), -0.5);
  EXPECT_EQ(parse_double("+2."), 2.0);
  EXPECT_EQ(parse_double(".inf"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(parse_double("-inf"), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(*parse_double("nan")));
  for (const char* bad : {"", "-", "+", ".", "1e", "e5", "1,5", "0x1p3", "1 2", "infinit", "+-1", "--1"}) {
    EXPECT_EQ(parse_double(bad), std::nullopt) << bad;
  }
}

TEST(Strings, FormatDoubleReadsBackEqual) {
  for (double value : {0.1, 1.0 / 3.0, 1e-300, 1e22, 123456789.125, -0.0, 5e-324}) {
    EXPECT_EQ(parse_double(format_double(value)), value) << format_double(value);
  }
  EXPECT_EQ(format_double(0.001), "0.001");
  EXPECT_EQ(format_double(16), "16");
}

}  // namespace
}  // namespace redline
