#include <set>

#include "core/error.h"
#include "core/strings.h"
#include "data/nuscenes.h"

namespace redline::data {

int64_t NuscenesOptions::cameras_in_training() const { return std::min(ncams, static_cast<int64_t>(cams.size())); }

config::Table<NuscenesOptions> NuscenesOptions::fields() {
  using N = NuscenesOptions;
  using config::Effect;
  config::Table<N> t;
  t.add("version", &N::version,
        "Folder of the tables below the data set's path, e.g. v1.0-mini; empty: the one there is.");
  t.add("train_split", &N::train_split,
        "Scenes to train on: train, val, mini_train, mini_val, all, or scene names with commas; empty: train or "
        "mini_train.");
  t.add("val_split", &N::val_split, "Scenes to validate on; empty: val or mini_val.");
  t.add("cams", &N::cams, "Cameras, in this order.").effect(Effect::Model);
  t.add("ncams", &N::ncams, "Cameras drawn for a sample in training; validation sees all.")
      .at_least(1)
      .effect(Effect::Optimisation)
      .alias("Ncams");
  t.add("resize_lim", &N::resize_lim, "Training: lowest and highest factor of the resize.")
      .effect(Effect::Optimisation);
  t.add("bot_pct_lim", &N::bot_pct_lim,
        "Lowest and highest share of the height cut off below; validation takes the middle.")
      .effect(Effect::Optimisation);
  t.add("rot_lim", &N::rot_lim, "Training: lowest and highest rotation.").unit("degrees").effect(Effect::Optimisation);
  t.add("rand_flip", &N::rand_flip, "Training: flip every second picture.").effect(Effect::Optimisation);
  return t;
}

void NuscenesOptions::check() const {
  const auto fail = [](const std::string& sentence) { throw ConfigError(sentence); };
  for (const auto& [list, name] :
       {std::pair{&resize_lim, "resize_lim"}, std::pair{&bot_pct_lim, "bot_pct_lim"}, std::pair{&rot_lim, "rot_lim"}})
    if (list->size() != 2 || (*list)[0] > (*list)[1])
      fail(std::string("model.nuscenes.") + name + " needs two numbers, the lower one first.");
  if (!(resize_lim[0] > 0.0) || resize_lim[1] > 4.0) fail("model.nuscenes.resize_lim must lie in (0, 4].");
  if (bot_pct_lim[0] < 0.0 || bot_pct_lim[1] >= 1.0) fail("model.nuscenes.bot_pct_lim must lie in [0, 1).");
  if (rot_lim[0] < -180.0 || rot_lim[1] > 180.0) fail("model.nuscenes.rot_lim must lie in [-180, 180].");
  if (cams.empty()) fail("model.nuscenes.cams is empty; name at least one camera.");
  if (std::set<std::string>(cams.begin(), cams.end()).size() != cams.size())
    fail("model.nuscenes.cams names a camera twice: " + join(cams, ", ") + ".");
  if (ncams > static_cast<int64_t>(cams.size()))
    fail("model.nuscenes.ncams is " + std::to_string(ncams) + ", but there are " + std::to_string(cams.size()) +
         " cams to draw from.");
}

}  // namespace redline::data
