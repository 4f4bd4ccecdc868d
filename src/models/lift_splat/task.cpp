// The loss is the mean over cells of the binary cross entropy, occupied ones weighted. Metrics over a validation are
// made of areas alone (mmseg's pre_eval): no prediction is kept.
#include "models/lift_splat/task.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/strings.h"
#include "data/option_names.h"
#include "models/lift_splat/reference_names.h"
#include "models/lift_splat/work_estimate.h"

namespace redline::models::lift_splat {

namespace {

constexpr double kRotationSlack = 1e-3;

// A rotation that is none would move every point somewhere else, silently.
void check_rotations(const torch::Tensor& rots, const std::vector<int64_t>& ids) {
  const torch::Tensor r = rots.to(torch::kCPU, torch::kFloat64);
  const torch::Tensor off = (r.matmul(r.transpose(-1, -2)) - torch::eye(3, torch::kFloat64)).abs().flatten(2).amax(-1);
  const torch::Tensor bad = (off > kRotationSlack).logical_or(off.isnan()).nonzero();
  if (bad.size(0) == 0) return;
  const int64_t sample = bad[0][0].item<int64_t>(), camera = bad[0][1].item<int64_t>();
  throw DataError(
      fmt::format("The rotation of camera {} of sample {} is none: its rows are not at right angles and of length 1 "
                  "(off by {:.3g}, "
                  "at most {} is rounding). Check the calibration.",
                  camera, ids[static_cast<size_t>(sample)], off[sample][camera].item<double>(), kRotationSlack));
}

}  // namespace

LiftSplatTask::LiftSplatTask(const Options& options, uint64_t seed)
    : options_(options),
      model_(nullptr),
      validation_(options.classes),
      scenes_(std::make_shared<SceneStore>(options.monitor.pictures_every_n_steps)) {
  options_.check();
  model_ = Model(options_, seed);
}

task::BatchSchema LiftSplatTask::schema() const {
  const int64_t h = options_.image_size[0], w = options_.image_size[1];
  return {{{"imgs", torch::kFloat32, {-2, -1, 3, h, w}, false, "pictures of the cameras, normalised"},
           {"rots", torch::kFloat32, {-2, -1, 3, 3}, false, "rotation from camera to car"},
           {"trans", torch::kFloat32, {-2, -1, 3}, false, "place of the camera on the car"},
           {"intrins", torch::kFloat32, {-2, -1, 3, 3}, false, "camera matrix of the stored picture"},
           {"post_rots", torch::kFloat32, {-2, -1, 3, 3}, false, "what resize, flip and rotation did to pixels"},
           {"post_trans", torch::kFloat32, {-2, -1, 3}, false, "and where crop and flip moved them"},
           {"binimgs",
            torch::kFloat32,
            {-2, options_.num_classes(), options_.grid.cells(0), options_.grid.cells(1)},
            false,
            "occupied cells of each class"},
           {"boxes", torch::kFloat32, {-2, -1, 8, 3}, true, "corners of annotations, for pictures"}}};
}

task::Loss LiftSplatTask::loss(const task::Batch& batch, task::Context& ctx) {
  check_rotations(batch.at("rots"), batch.sample_ids);
  const torch::Tensor logits = model_->forward(batch, ctx), truth = batch.at("binimgs");
  task::Loss out;
  out.value = cell_loss(logits, truth);
  out.weight = torch::full({}, static_cast<double>(batch.size()), torch::kFloat32);
  if (!ctx.training()) validation_.add(logits, truth);
  scenes_->note(batch, logits, ctx);
  return out;
}

torch::Tensor LiftSplatTask::cell_loss(const torch::Tensor& logits, const torch::Tensor& truth) const {
  return torch::binary_cross_entropy_with_logits(
      logits, truth, {}, torch::full({1}, options_.pos_weight, logits.options()), at::Reduction::Mean);
}

task::Tensors LiftSplatTask::before(const task::Batch& batch, task::Context& ctx) {
  check_rotations(batch.at("rots"), batch.sample_ids);
  const PlanTensors plan = model_->outside(batch, ctx);
  return {{"imgs", batch.at("imgs")},
          {"binimgs", batch.at("binimgs")},
          {"cell_of", plan.cell_of},
          {"begin", plan.begin},
          {"points", plan.points}};
}

task::PartResult LiftSplatTask::compute(const task::Tensors& in, task::Context& ctx) {
  const torch::Tensor& images = in.at("imgs");
  const torch::Tensor logits = model_->traced_forward(images, {in.at("cell_of"), in.at("begin"), in.at("points")}, ctx);
  task::PartResult out;
  out.loss.value = cell_loss(logits, in.at("binimgs"));
  out.loss.weight = torch::full({}, static_cast<double>(images.size(0)), logits.options());
  out.notes = {{"preds", logits.detach()}};
  return out;
}

void LiftSplatTask::after(const task::Batch& batch, const task::PartResult& result, task::Context& ctx) {
  scenes_->note(batch, result.notes.at("preds"), ctx);
}

std::map<std::string, torch::Tensor> LiftSplatTask::predict(const task::Batch& batch, task::Context& ctx) {
  const torch::NoGradGuard no_grad;
  check_rotations(batch.at("rots"), batch.sample_ids);
  return {{"preds", model_->forward(batch, ctx)}};
}

std::vector<task::MetricInfo> LiftSplatTask::metrics() const {
  std::vector<task::MetricInfo> list;
  for (const std::string& name : options_.classes)
    list.push_back({name + "_iou", "", "Intersection over union of " + name + " cells, pooled over the set."});
  list.push_back({"miou", "", "Mean over classes, background included, of intersection over union (mmseg's mIoU)."});
  list.push_back({"macc", "", "Mean over classes, background included, of the share that was found (mmseg's mAcc)."});
  list.push_back({"aacc", "", "Share of cells with the right class (mmseg's aAcc)."});
  return list;
}

std::vector<double> LiftSplatTask::take_validation_sums() {
  scenes_->validation_ended();
  return validation_.take();
}

std::unique_ptr<task::Monitor> LiftSplatTask::monitor() {
  if (scenes_->every() <= 0) return nullptr;
  return std::make_unique<SceneMonitor>(options_, scenes_);
}

std::map<std::string, double> LiftSplatTask::finish_validation(const std::vector<double>& sums) {
  return validation_.metrics(sums);
}

double LiftSplatTask::flops_per_sample(double) const {
  const int64_t cameras = options_.nuscenes.cameras_in_training();
  return sample_flops(options_, cameras);
}

task::Batch LiftSplatTask::worst_case_batch(int64_t batch_size) const {
  const int64_t cameras = static_cast<int64_t>(options_.nuscenes.cams.size()), h = options_.image_size[0],
                w = options_.image_size[1];
  task::Batch batch;
  for (int64_t b = 0; b < batch_size; ++b) batch.sample_ids.push_back(b);
  const auto fill = [&](const char* name, const torch::Tensor& one) {
    std::vector<int64_t> shape{batch_size, cameras};
    shape.insert(shape.end(), one.sizes().begin(), one.sizes().end());
    batch.tensors[name] = one.expand(shape).contiguous();
  };
  fill("imgs", (torch::arange(3 * h * w, torch::kFloat32) * 0.37).sin().view({3, h, w}));
  fill("trans", torch::zeros({3}));
  fill("post_trans", torch::zeros({3}));
  fill("post_rots", torch::eye(3));
  // Looks ahead: x of the car is the picture's depth.
  fill("rots", torch::tensor({0.0f, 0.0f, 1.0f, -1.0f, 0.0f, 0.0f, 0.0f, -1.0f, 0.0f}).view({3, 3}));
  const auto f = static_cast<float>(w);
  fill("intrins", torch::tensor({f, 0.0f, f / 2, 0.0f, f, static_cast<float>(h) / 2, 0.0f, 0.0f, 1.0f}).view({3, 3}));
  batch.tensors["binimgs"] =
      torch::zeros({batch_size, options_.num_classes(), options_.grid.cells(0), options_.grid.cells(1)});
  batch.items = batch.padded_items = batch_size;
  return batch;
}

data::CollateSpec LiftSplatTask::collate() const {
  data::CollateSpec spec;
  for (const char* name : {"imgs", "rots", "trans", "intrins", "post_rots", "post_trans", "binimgs"})
    spec.fields.push_back({name, 0.0, 1, "", false});
  if (options_.request().boxes > 0) spec.fields.push_back({"boxes", 0.0, 1, "", false});
  return spec;
}

void LiftSplatConfig::resolve(const MachineFacts&) { options_.check(); }

std::unique_ptr<task::Task> LiftSplatConfig::build(uint64_t seed) const {
  return std::make_unique<LiftSplatTask>(options_, seed);
}

task::TaskEntry lift_splat_entry() {
  task::TaskEntry entry;
  entry.name = "lift_splat";
  entry.sentence = "Lift-Splat-Shoot with a Swin backbone on nuScenes: cameras to a bird's-eye-view map of vehicles.";
  entry.make_config = [] { return std::make_unique<LiftSplatConfig>(); };
  entry.from_reference_names = names_of_swin;
  entry.guide_claims = {{"batch_size", "4", "6", "+10-20 %"},
                        {"precision", "", "", "+7-21 %"},
                        {data::kNumWorkers, "8", "12", "+0-10 %"}};
  return entry;
}

}  // namespace redline::models::lift_splat
