// The one compiled copy of fmt's non-template parts. LibTorch brings fmt's headers but no library; using them header-only would compile
// these parts anew in each of our files, at more than half of each file's compile time.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {
template FMT_API auto dragonbox::to_decimal<float>(float) noexcept -> dragonbox::decimal_fp<float>;
template FMT_API auto dragonbox::to_decimal<double>(double) noexcept -> dragonbox::decimal_fp<double>;
template FMT_API auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl<char>(locale_ref) -> char;
}  // namespace detail
FMT_END_NAMESPACE
