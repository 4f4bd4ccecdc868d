// The monitor's pictures: how KL, information, active units, reconstruction and KL weight moved over the run (with
// collapsed spans shaded), and what each latent dimension carries now.
#pragma once

#include <string>
#include <vector>

#include "models/sequence_vae/collapse.h"
#include "models/sequence_vae/history.h"

namespace redline::models::sequence_vae {

struct PosteriorPicture {
  int64_t step = 0;
  std::vector<HistoryPoint> history;
  std::vector<double> kl_per_dim, variance;
  double active_variance = 0.01;
  CollapseVerdict verdict;
};

std::string history_svg(const PosteriorPicture& picture);
std::string dimensions_svg(const PosteriorPicture& picture);
std::string history_png(const PosteriorPicture& picture);
std::string dimensions_png(const PosteriorPicture& picture);

}  // namespace redline::models::sequence_vae
