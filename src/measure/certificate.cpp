#include "measure/certificate.h"

namespace redline::measure {

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

}  // namespace redline::measure
