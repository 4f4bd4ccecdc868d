// JSON of the certificate.
#include "measure/certificate.h"

#include "measure/detail/tune_json.h"

namespace redline::measure {
namespace {

constexpr CertificateKind kKinds[] = {CertificateKind::Identical, CertificateKind::WithinNoise,
                                      CertificateKind::TrainsDifferently, CertificateKind::Different};

detail::OrderedJson losses_json(const std::vector<double>& losses) {
  detail::OrderedJson list = detail::OrderedJson::array();
  for (double loss : losses) list.push_back(detail::number_json(loss));
  return list;
}

std::vector<double> losses_of(const detail::OrderedJson& json) {
  std::vector<double> losses;
  for (const auto& value : json) losses.push_back(detail::number_from(value).value_or(0));
  return losses;
}

detail::OrderedJson check_json(const CertificateCheck& check) {
  return {{"name", check.name},
          {"difference", detail::number_json(check.difference)},
          {"tolerance", detail::number_json(check.tolerance)},
          {"tolerance_source", check.tolerance_source},
          {"passed", check.passed}};
}

CertificateCheck check_of(const detail::OrderedJson& json) {
  CertificateCheck check;
  json.at("name").get_to(check.name);
  check.difference = detail::number_from(json.at("difference")).value_or(0);
  check.tolerance = detail::number_from(json.at("tolerance")).value_or(0);
  json.at("tolerance_source").get_to(check.tolerance_source);
  json.at("passed").get_to(check.passed);
  return check;
}

CertificateKind kind_of(const std::string& word) {
  for (CertificateKind kind : kKinds) {
    if (word == certificate_kind_name(kind)) return kind;
  }
  throw nlohmann::json::other_error::create(501, "unknown certificate kind '" + word + "'", nullptr);
}

}  // namespace

const char* certificate_kind_name(CertificateKind kind) {
  switch (kind) {
    case CertificateKind::Identical:
      return "identical";
    case CertificateKind::WithinNoise:
      return "within noise";
    case CertificateKind::TrainsDifferently:
      return "trains differently";
    case CertificateKind::Different:
      return "different";
  }
  return "?";
}

namespace detail {

OrderedJson certificate_json(const Certificate& certificate) {
  OrderedJson json = {{"format", "redline.certificate"},
                      {"version", kCertificateVersion},
                      {"kind", certificate_kind_name(certificate.kind)},
                      {"accepted", certificate.accepted()},
                      {"reason", certificate.reason},
                      {"reference_hash", certificate.reference_hash},
                      {"candidate_hash", certificate.candidate_hash},
                      {"effects", certificate.effects},
                      {"seed", certificate.seed},
                      {"steps", certificate.steps},
                      {"samples", certificate.samples},
                      {"consent", certificate.consent}};
  json["first_different_step"] =
      certificate.first_different_step ? OrderedJson(*certificate.first_different_step) : OrderedJson();
  json["seed_spread"] = certificate.seed_spread ? interval_json(*certificate.seed_spread) : OrderedJson();
  json["reference_losses"] = losses_json(certificate.reference_losses);
  json["candidate_losses"] = losses_json(certificate.candidate_losses);
  json["checks"] = OrderedJson::array();
  for (const CertificateCheck& check : certificate.checks) json["checks"].push_back(check_json(check));
  return json;
}

Certificate certificate_of(const OrderedJson& json) {
  Certificate certificate;
  certificate.kind = kind_of(json.at("kind").get<std::string>());
  json.at("reason").get_to(certificate.reason);
  json.at("reference_hash").get_to(certificate.reference_hash);
  json.at("candidate_hash").get_to(certificate.candidate_hash);
  json.at("effects").get_to(certificate.effects);
  json.at("seed").get_to(certificate.seed);
  json.at("steps").get_to(certificate.steps);
  json.at("samples").get_to(certificate.samples);
  json.at("consent").get_to(certificate.consent);
  if (const auto& step = json.at("first_different_step"); !step.is_null())
    certificate.first_different_step = step.get<int64_t>();
  if (const auto& spread = json.at("seed_spread"); !spread.is_null()) certificate.seed_spread = interval_of(spread);
  certificate.reference_losses = losses_of(json.at("reference_losses"));
  certificate.candidate_losses = losses_of(json.at("candidate_losses"));
  for (const OrderedJson& check : json.at("checks")) certificate.checks.push_back(check_of(check));
  return certificate;
}

}  // namespace detail

std::string certificate_to_json(const Certificate& certificate) {
  return detail::dump(detail::certificate_json(certificate));
}

Certificate certificate_from_json(const std::string& text, const std::string& name) {
  return detail::read_document(text, name, "redline.certificate", kCertificateVersion,
                               [](const detail::OrderedJson& json) { return detail::certificate_of(json); });
}

}  // namespace redline::measure
