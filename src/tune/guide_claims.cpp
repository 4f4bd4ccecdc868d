#include "tune/guide_claims.h"

#include <array>

namespace redline::tune {

namespace {

struct Claim {
  const char *task, *field, *text;
};
// docs/guides_claims.json has them row by row with their guide; here by the field a ledger names.
constexpr std::array<Claim, 15> kClaims = {{
    {"speech_ssl", "batch_size", "+100-200 % (2 to 8)"},
    {"speech_ssl", "precision", "+50-100 %"},
    {"speech_ssl", "num_workers", "+200-400 % (0 to 4)"},
    {"speech_ssl", "is_tarred", "+20-50 %"},
    {"speech_ssl", "log_every_n_steps", "+5-10 %"},
    {"speech_ssl", "val_check_interval", "+10-20 %"},
    {"speech_ssl", "compile", "+10-30 %"},
    {"sequence_vae", "batch_size", "+30-50 % (1 to 4)"},
    {"sequence_vae", "micro_batch_size", "+30-50 % (1 to 4)"},
    {"sequence_vae", "num_workers", "+20-30 % (2 to 8)"},
    {"sequence_vae", "precision", "+20-40 %"},
    {"sequence_vae", "monitor.update_frequency", "+5-15 %"},
    {"sequence_vae", "val_check_interval", "+5-15 %"},
    {"convnext", "precision", "+50-100 %"},
    {"lift_splat", "precision", "+50-100 %"},
}};

}  // namespace

std::string guide_claim(const std::string& task, const std::string& field) {
  for (const Claim& claim : kClaims)
    if (task == claim.task && field == claim.field) return claim.text;
  return {};
}

}  // namespace redline::tune
