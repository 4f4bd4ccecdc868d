// The processes of a job joined to each other: a store to meet in, and two groups of c10d (one for the gradients'
// buckets, one for everything else, so that neither waits behind the other). Every rank makes the same calls in the
// same order. A call that fails because a rank is gone throws PeerLostError that names it.
//
// Nothing listens outside loopback when all ranks are on one machine: the store gets a socket that is bound already
// (TCPStore alone would take every interface), and Gloo's device is that of 127.0.0.1.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "train/launch.h"

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace redline::train {

struct RankGroupSettings {
  double join_seconds = 300;         // that ranks wait for each other at the start
  double collective_seconds = 1800;  // that one waits for the others in a collective while they are alive
  std::string backend = "gloo";      // or "nccl" (where LibTorch has it; not tested here)
};

// Connects to the store, or holds it. Throws PeerLostError when nobody answers in time.
c10::intrusive_ptr<c10d::Store> open_store(const Launch& launch, double seconds);

// Makes sure that this process and rank 0 mean the same job, and that nobody else is this rank. Throws ConfigError.
void check_token(c10d::Store& store, const Launch& launch, const std::string& job);

class RankGroup {
 public:
  // `lost` turns a failed call into an exception; it does not return.
  using Lost = std::function<void(const std::string& what)>;
  RankGroup(const Launch& launch, const c10::intrusive_ptr<c10d::Store>& store, const RankGroupSettings& settings,
            Lost lost);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  int rank() const { return rank_; }
  int world() const { return world_; }
  // Numbers of all ranks in the order of ranks; each gives equally many.
  std::vector<double> gather(std::span<const double> mine);
  void add_in_place(torch::Tensor& tensor);
  // Rows of all ranks one below the other. `shapes`: rows, columns (0: none) and type of each rank's, gathered before;
  // a rank without rows gives an undefined tensor. Undefined when there are none at all.
  torch::Tensor join(const torch::Tensor& mine, const std::vector<double>& shapes);
  // Rank 0's, on all.
  void follow_in_place(const std::vector<torch::Tensor>& tensors);
  std::string follow(const std::string& mine);
  void barrier();
  const c10::intrusive_ptr<c10d::ProcessGroup>& for_gradients() const { return gradients_; }
  // Runs a call of c10d's own; a failure goes the same way.
  void guarded(const std::function<void()>& call);

 private:
  int rank_, world_;
  Lost lost_;
  c10::intrusive_ptr<c10d::ProcessGroup> control_, gradients_;
};

}  // namespace redline::train
