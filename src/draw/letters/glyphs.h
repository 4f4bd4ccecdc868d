// Letters for the PNG canvas: 5 x 7 pixels each, drawn for this project, rows from the top in 5-bit groups.
#pragma once

#include <cstdint>

namespace redline::draw {

struct Glyph {
  char letter;
  uint64_t rows;
};
inline constexpr int kGlyphWidth = 5, kGlyphHeight = 7;
// clang-format off
inline constexpr Glyph kGlyphs[] = {
    {'%', 0x672222273}, {'(', 0x088842082}, {')', 0x208210888}, {'+', 0x0084f9080}, {',', 0x000003088}, {'-', 0x0000f8000},
    {'.', 0x00000018c}, {'/', 0x042222210}, {'0', 0x3a33ae62e}, {'1', 0x11842108e}, {'2', 0x3a211111f}, {'3', 0x7c441062e},
    {'4', 0x08ca97c42}, {'5', 0x7e1e0862e}, {'6', 0x1910f462e}, {'7', 0x7c2221108}, {'8', 0x3a317462e}, {'9', 0x3a317844c},
    {':', 0x018c03180}, {';', 0x018c03088}, {'<', 0x088882082}, {'=', 0x001f07c00}, {'>', 0x208208888}, {'A', 0x3a31fc631},
    {'B', 0x7a31f463e}, {'C', 0x3a308422e}, {'D', 0x7a318c63e}, {'E', 0x7e10f421f}, {'F', 0x7e10f4210}, {'G', 0x3a30bc62e},
    {'H', 0x4631fc631}, {'I', 0x38842108e}, {'J', 0x0c210c62e}, {'K', 0x4654c5251}, {'L', 0x42108421f}, {'M', 0x4775ac631},
    {'N', 0x4739ace71}, {'O', 0x3a318c62e}, {'P', 0x7a31f4210}, {'Q', 0x3a318d64d}, {'R', 0x7a31f5251}, {'S', 0x3e107043e},
    {'T', 0x7c8421084}, {'U', 0x46318c62e}, {'V', 0x46318c544}, {'W', 0x4631ad771}, {'X', 0x462a22a31}, {'Y', 0x462a21084},
    {'Z', 0x7c222221f}, {'_', 0x00000001f}, {'a', 0x000e0be2f}, {'b', 0x421e8c63e}, {'c', 0x000e8c22e}, {'d', 0x042f8c62f},
    {'e', 0x000e8fe0e}, {'f', 0x1928e2108}, {'g', 0x01f18bc2e}, {'h', 0x421e8c631}, {'i', 0x100c2108e}, {'j', 0x080610a4c},
    {'k', 0x4212a6292}, {'l', 0x30842108e}, {'m', 0x001aad6b5}, {'n', 0x001e8c631}, {'o', 0x000e8c62e}, {'p', 0x03d18fa10},
    {'q', 0x01f18bc21}, {'r', 0x0016cc210}, {'s', 0x000f8383e}, {'t', 0x211e42126}, {'u', 0x00118c66d}, {'v', 0x00118c544},
    {'w', 0x00118d6aa}, {'x', 0x001151151}, {'y', 0x02318bc2e}, {'z', 0x001f1111f},
};
// clang-format on

inline uint64_t glyph_rows(char letter) {
  for (const Glyph& glyph : kGlyphs)
    if (glyph.letter == letter) return glyph.rows;
  return 0;  // a space, and whatever has no picture
}

}  // namespace redline::draw
