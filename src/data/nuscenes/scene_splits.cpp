#include "data/nuscenes/scene_splits.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/strings.h"

namespace redline::data::nuscenes {

namespace {

struct Range {
  int first, last;  // numbers of scenes, both included
};
struct Split {
  const char* name;
  std::vector<Range> ranges;
};

const std::vector<Split>& known_splits() {
  static const std::vector<Split> all{
      {"train", {{1, 2},     {4, 11},    {19, 34},   {41, 76},    {120, 135},   {138, 139},   {149, 152},  {154, 155},
                 {157, 168}, {170, 185}, {187, 188}, {190, 196},  {199, 200},   {202, 204},   {206, 214},  {218, 220},
                 {222, 222}, {224, 264}, {283, 306}, {315, 318},  {321, 321},   {323, 324},   {328, 328},  {347, 386},
                 {388, 403}, {405, 408}, {410, 459}, {461, 465},  {467, 469},   {471, 472},   {474, 480},  {499, 502},
                 {504, 515}, {517, 518}, {525, 539}, {541, 546},  {566, 566},   {568, 568},   {570, 578},  {580, 580},
                 {582, 600}, {639, 679}, {681, 681}, {683, 689},  {695, 698},   {700, 701},   {703, 719},  {726, 728},
                 {730, 731}, {733, 741}, {744, 744}, {746, 747},  {749, 752},   {757, 765},   {767, 769},  {786, 787},
                 {789, 792}, {803, 806}, {808, 813}, {815, 817},  {819, 822},   {847, 856},   {858, 858},  {860, 866},
                 {868, 873}, {875, 878}, {880, 880}, {882, 903},  {945, 945},   {947, 947},   {949, 949},  {952, 953},
                 {955, 961}, {975, 984}, {988, 992}, {994, 1025}, {1044, 1058}, {1074, 1102}, {1104, 1110}}},
      {"val",
       {{3, 3},     {12, 18},   {35, 36},   {38, 39},   {92, 110},  {221, 221}, {268, 278}, {329, 332},  {344, 346},
        {519, 524}, {552, 565}, {625, 627}, {629, 630}, {632, 638}, {770, 771}, {775, 775}, {777, 778},  {780, 784},
        {794, 800}, {802, 802}, {904, 917}, {919, 931}, {962, 963}, {966, 969}, {971, 972}, {1059, 1073}}},
      {"mini_train",
       {{61, 61}, {553, 553}, {655, 655}, {757, 757}, {796, 796}, {1077, 1077}, {1094, 1094}, {1100, 1100}}},
      {"mini_val", {{103, 103}, {916, 916}}}};
  return all;
}

// The number of "scene-0061"; -1 for another name.
int scene_number(std::string_view scene) {
  if (!starts_with(scene, "scene-") || scene.size() != 10) return -1;
  // parse_int knows no leading zeros' meaning but decimal.
  return static_cast<int>(parse_int(scene.substr(6)).value_or(-1));
}

}  // namespace

std::function<bool(std::string_view)> scenes_of(const std::string& split) {
  if (split == "all") return [](std::string_view) { return true; };
  for (const Split& known : known_splits())
    if (split == known.name)
      return [&known](std::string_view scene) {
        const int number = scene_number(scene);
        return std::any_of(known.ranges.begin(), known.ranges.end(),
                           [number](const Range& r) { return number >= r.first && number <= r.last; });
      };
  std::set<std::string, std::less<>> names;
  for (const std::string& part : redline::split(split, ',')) {
    const std::string name = trim(part);
    if (!starts_with(name, "scene-"))
      throw ConfigError("The scene split '" + printable(split) +
                        "' is unknown; known are train, val, mini_train, mini_val and all, or give scene names with "
                        "commas (scene-0061,scene-0103).");
    names.insert(name);
  }
  return [names](std::string_view scene) { return names.count(scene) != 0; };
}

}  // namespace redline::data::nuscenes
