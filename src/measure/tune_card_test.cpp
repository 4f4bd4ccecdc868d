#include "measure/tune_card.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/philox.h"

namespace redline::measure {
namespace {

LedgerEntry bf16() {
  LedgerEntry entry;
  entry.field = "trainer.precision";
  entry.from = "32-true";
  entry.to = "bf16-mixed";
  entry.effect = "numerics";
  entry.claim = "+50-100 %";
  entry.predicted = 0.5;
  entry.add_one_in = RatioEstimate{0.4, {0.38, 0.42}, 6};
  entry.leave_one_out = RatioEstimate{0.5, {0.48, 0.52}, 6};
  entry.measured = RatioEstimate{0.4, {0.37, 0.43}, 6};
  entry.predicted_interval = Interval{0.4, 0.6};
  entry.verdict = LedgerVerdict::Slower;
  return entry;
}

TuneCard full_card() {
  TuneCard card;
  card.created = "2026-11-15T20:01:02.345Z";
  card.fingerprint = {"m", "d", "machine \"x\"", "v", "r"};
  card.values = {{"trainer.intra_op_threads", "2"}, {"model.train_ds.batch_size", "8"}};
  card.ledger.entries.push_back(bf16());
  LedgerEntry pinned;
  pinned.field = "pin_memory";
  pinned.reason = "no GPU";
  card.ledger.entries.push_back(pinned);
  card.ledger.best = RatioEstimate{1.7, {1.6, 1.8}, 8};
  card.ledger.bound_left = 1.02;
  card.certificate = Certificate{};
  card.certificate->kind = CertificateKind::WithinNoise;
  card.certificate->effects = {"order"};
  card.certificate->checks.push_back({"loss of steps 1..20", 1e-7, 2e-7, "1 against 2 threads", true});
  card.certificate->reference_losses = {1.5, std::nan(""), HUGE_VAL};
  card.certificate->paired =
      PairedEvidence{"val_loss", "64 of them", "short", 64,   5,           12,  0.01, 0.02,      0.05,
                     0.2,        10,           6,       0.01, {-0.1, 0.1}, 0.9, 7,    {0.1, 0.2}};
  card.certificate->time_to_loss =
      TimeToLoss{true, "6.0", 40, 0.8, RatioEstimate{0.9, {0.8, 1.0}, 5}, 1.5, std::nullopt};
  card.certificate->first_different_step = 3;
  card.break_even = {60, 20, 10, 20, 100000, 16, 0.1};
  card.full_ledger = true;
  card.promised_ratio = {1.6, 1.8};
  card.peak_tensor_bytes = int64_t{3} << 30;
  card.largest_batch = LargestBatch{64, int64_t{7} << 30, int64_t{8} << 30, false};
  card.budget_seconds = 180;
  card.notes = {"a note"};
  return card;
}

TEST(Ledger, DerivedFigures) {
  const LedgerEntry entry = bf16();
  EXPECT_EQ(entry.verdict, LedgerVerdict::Slower);
  EXPECT_DOUBLE_EQ(*entry.interaction(), 1.25);
  EXPECT_NEAR(*entry.prediction_error_points(), 10, 1e-9);
  EXPECT_FALSE(LedgerEntry{}.interaction().has_value());
  EXPECT_FALSE(LedgerEntry{}.prediction_error_points().has_value());
  EXPECT_EQ(LedgerEntry{}.verdict, LedgerVerdict::NotMeasurable) << "what was not tried is never called no effect";
  Ledger ledger;
  EXPECT_FALSE(ledger.median_prediction_error_points().has_value());
  ledger.entries = {bf16(), LedgerEntry{}};
  EXPECT_NEAR(*ledger.median_prediction_error_points(), 10, 1e-9);
}

TEST(TuneCard, EveryDocumentReadsBack) {
  const TuneCard card = full_card();
  const std::string text = tune_card_to_json(card);
  const TuneCard back = tune_card_from_json(text, "card");
  EXPECT_EQ(tune_card_to_json(back), text);
  EXPECT_EQ(back.fingerprint, card.fingerprint);
  EXPECT_EQ(back.values, card.values);
  ASSERT_EQ(back.ledger.entries.size(), 2U);
  EXPECT_EQ(back.ledger.entries[0].add_one_in->interval.low, 0.38);
  EXPECT_EQ(back.ledger.entries[1].verdict, LedgerVerdict::NotMeasurable);
  ASSERT_TRUE(back.certificate.has_value());
  EXPECT_EQ(back.certificate->kind, CertificateKind::WithinNoise);
  EXPECT_TRUE(std::isnan(back.certificate->reference_losses[1]));
  EXPECT_EQ(back.certificate->reference_losses[2], HUGE_VAL);
  EXPECT_EQ(*back.certificate->first_different_step, 3);
}

TEST(TuneCard, RefusesOtherDocuments) {
  const std::string text = tune_card_to_json(full_card());
  EXPECT_THROW(tune_card_from_json("", "x"), DataError);
  EXPECT_THROW(tune_card_from_json("[]", "x"), DataError);
  EXPECT_THROW(tune_card_from_json(R"({"format":"redline.tune_card","version":3})", "x"), DataError);
  EXPECT_THROW(tune_card_from_json(R"({"format":"redline.tune_card","version":1})", "x"), DataError);
}

// No damage may crash the reader: it reads, or throws DataError.
TEST(TuneCard, SurvivesMutation) {
  const std::string text = tune_card_to_json(full_card());
  KeyedStream draws(9, 0, 0, 0);
  for (int i = 0; i < 3000; ++i) {
    std::string mutated = text;
    for (int64_t edits = draws.uniform_int(1, 4); edits > 0; --edits) {
      const auto at = static_cast<size_t>(draws.uniform_int(0, static_cast<int64_t>(mutated.size()) - 1));
      if (draws.uniform() < 0.2) {
        mutated.resize(at + 1);
      } else {
        mutated[at] = static_cast<char>(draws.uniform_int(0, 255));
      }
    }
    try {
      tune_card_from_json(mutated, "x");
    } catch (const DataError&) {
    }
  }
}

TEST(TuneCard, Matching) {
  const TuneFingerprint card = {"m", "d", "a", "v", "r"};
  EXPECT_EQ(match_fingerprint(card, card), CardMatch::Same);
  EXPECT_EQ(match_fingerprint(card, {"m", "d", "b", "v", "r"}), CardMatch::OtherMachine);
  EXPECT_EQ(match_fingerprint(card, {"m2", "d", "a", "v", "r"}), CardMatch::Other);
  EXPECT_EQ(match_fingerprint(card, {"m", "d", "b", "v2", "r"}), CardMatch::Other);
}

TEST(TuneCard, BreakEven) {
  const BreakEven costs = {60, 20, 10, 20, 100000};
  EXPECT_DOUBLE_EQ(*costs.samples(), 1600);  // 80 s earned back at 0.05 s a sample
  EXPECT_DOUBLE_EQ(costs.baseline_finish_seconds(), 10000);
  EXPECT_DOUBLE_EQ(costs.best_finish_seconds(), 5080);
  EXPECT_FALSE((BreakEven{60, 0, 10, 10, 1}).samples().has_value()) << "no gain never pays";
  EXPECT_FALSE((BreakEven{60, 0, 10, 5, 1}).samples().has_value());
  EXPECT_FALSE((BreakEven{60, 0, 10, 0, 1}).samples().has_value()) << "a tuned run that does not run";
}

TEST(Certificate, OnlyDifferentIsRejected) {
  for (const auto kind :
       {CertificateKind::Identical, CertificateKind::WithinNoise, CertificateKind::NotWorse, CertificateKind::Sooner}) {
    Certificate certificate;
    certificate.kind = kind;
    EXPECT_TRUE(certificate.accepted()) << certificate_kind_name(kind);
  }
  EXPECT_FALSE(Certificate{}.accepted()) << "without proof the answer is no";
}

}  // namespace
}  // namespace redline::measure
