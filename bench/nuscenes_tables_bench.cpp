// Loads the training split of nuScenes tables and prints seconds and the growth of the process. Argument: FOLDER of the
// tables. The peer is bench/lss/peer_tables.py.
#include <fmt/format.h>
#include <sys/resource.h>

#include "core/cores.h"
#include "core/time.h"
#include "data/nuscenes/scene_splits.h"
#include "data/nuscenes/tables.h"

namespace {

double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace redline;
  if (argc < 2) return 2;
  const double before = peak_mib();
  const int64_t begin = now_ns();
  const data::nuscenes::TableRequest request{
      {"CAM_FRONT_LEFT", "CAM_FRONT", "CAM_FRONT_RIGHT", "CAM_BACK_LEFT", "CAM_BACK", "CAM_BACK_RIGHT"},
      {"vehicle"},
      data::nuscenes::scenes_of("train"),
      affinity_cpus()};
  const data::nuscenes::Tables tables = data::nuscenes::read_tables(argv[1], request);
  fmt::print("{{\"load_seconds\": {:.3f}, \"mib\": {:.1f}, \"samples\": {}, \"annotations\": {}}}\n",
             seconds_between(begin, now_ns()), peak_mib() - before, tables.frames.size(), tables.annotations.size());
  return 0;
}
