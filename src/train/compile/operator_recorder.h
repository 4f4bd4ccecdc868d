// What LibTorch's operators a piece of C++ calls, as a program that can be run elsewhere: operators below autograd and
// autocast, so forward, backward and casts are plain calls; tensors are numbers. The code runs for real meanwhile.
//
// A value that no recorded operator made and no input is becomes a constant of the program. What a compiler cannot see
// is refused, as far as it can be told: values read on the host, sizes that depend on values, draws of a generator,
// tensors that something else than an operator wrote. What cannot be told (a number computed on the host from values)
// is found when the compiled step is held against the eager one.
//
// Threads: records the calling thread only, and one recorder at a time in it.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace redline::train {

// The code cannot be compiled: the sentence says which call is in the way.
struct CannotCompile : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct RecordedProgram {
  // Each: op ("aten::mm"), overload, args (see value_text), out (numbers, null where there is no tensor).
  nlohmann::json calls = nlohmann::json::array();
  std::map<int64_t, torch::Tensor> constants;
  nlohmann::json own_operators = nlohmann::json::object();  // not LibTorch's: schema by name
};

class OperatorRecorder {
 public:
  OperatorRecorder();
  ~OperatorRecorder();
  OperatorRecorder(const OperatorRecorder&) = delete;
  OperatorRecorder& operator=(const OperatorRecorder&) = delete;

  // Before run(): a tensor the program takes; its number.
  int64_t input(const torch::Tensor& tensor);
  // Runs the code while its operators are recorded. Throws CannotCompile, and what the code throws.
  void run(const std::function<void()>& code);
  // The number of a tensor of the recorded code; a constant when it knows none.
  int64_t number_of(const torch::Tensor& tensor);
  bool was_read(int64_t input) const;
  RecordedProgram take();

  // Between construction and destruction nothing of this thread is recorded.
  class Pause {
   public:
    Pause();
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    bool was_excluded_;
  };
  struct State;  // for the dispatcher's callback

 private:
  std::unique_ptr<State> state_;
};

// "float32", "channels_last": the names Python's torch has.
std::string dtype_name(torch::ScalarType type);
// Sizes, strides and type of a tensor, as a package tells its inputs.
nlohmann::json layout_json(const torch::Tensor& tensor);

}  // namespace redline::train
