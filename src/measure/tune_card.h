// The tune card: what the tuner found for one model, data set, machine and version, kept so that the next call costs
// nothing. A card is used as it is only when every part of its fingerprint is equal; when only the machine differs, a
// short re-check is worth trying.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "measure/certificate.h"
#include "measure/ledger.h"

namespace redline::measure {

inline constexpr int kTuneCardVersion = 2;

struct TuneFingerprint {
  std::string model;     // task and model options
  std::string data;      // number of samples, lengths, formats
  std::string machine;   // CPU, cores, memory limit, GPUs
  std::string versions;  // redline, LibTorch, formats
  std::string request;   // what may be moved: --allow, --memory, pinned values
  bool operator==(const TuneFingerprint&) const = default;
};
enum class CardMatch { Same, OtherMachine, Other };
CardMatch match_fingerprint(const TuneFingerprint& card, const TuneFingerprint& now);

// What tuning and compiling cost, and when that is earned back.
struct BreakEven {
  double tuning_seconds = 0, compile_seconds = 0;
  double baseline_samples_per_second = 0, best_samples_per_second = 0;
  double samples_of_run = 0;
  double samples_per_step = 0;  // of the tuned job
  double baseline_spread = 0;   // of the baseline's speed while it was tuned, relative, 95 %
  // Samples after which the tuned run, its costs included, is ahead; nullopt when it never is.
  std::optional<double> samples() const;
  double baseline_finish_seconds() const;
  double best_finish_seconds() const;  // costs included
};

// The most rows of the longest samples that ran at once under a memory limit.
struct LargestBatch {
  int64_t rows = 0, peak_bytes = 0, limit_bytes = 0;
  bool time_ended = false;  // more might fit
};

struct TuneCard {
  std::string created;  // UTC
  TuneFingerprint fingerprint;
  std::vector<std::pair<std::string, std::string>> values;  // field -> value, as a flag would set it
  Ledger ledger;
  std::optional<Certificate> certificate;
  BreakEven break_even;
  Interval promised_ratio;        // what a fresh interleaved run should find
  int64_t peak_tensor_bytes = 0;  // of the tuned job, over its longest samples, a validation and a step
  std::optional<LargestBatch> largest_batch;
  double budget_seconds = 0;  // that was given: a longer one may find more
  bool full_ledger = false;   // also what cannot gain was raced
  std::vector<std::string> notes;
};

std::string tune_card_to_json(const TuneCard& card);
// Throws DataError (no card, another version); `name` is for the message.
TuneCard tune_card_from_json(const std::string& text, const std::string& name);

}  // namespace redline::measure
