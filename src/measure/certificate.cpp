#include "measure/certificate.h"

namespace redline::measure {

const char* certificate_kind_name(CertificateKind kind) {
  switch (kind) {
    case CertificateKind::Identical:
      return "identical";
    case CertificateKind::WithinNoise:
      return "within noise";
    case CertificateKind::NotWorse:
      return "not worse";
    case CertificateKind::Sooner:
      return "reaches the loss sooner";
    case CertificateKind::NotShown:
      return "not shown";
    case CertificateKind::Worse:
      return "worse";
    case CertificateKind::Different:
      return "different";
  }
  return "?";
}

bool Certificate::accepted() const {
  switch (kind) {
    case CertificateKind::Identical:
    case CertificateKind::WithinNoise:
    case CertificateKind::NotWorse:
    case CertificateKind::Sooner:
      return true;
    case CertificateKind::NotShown:
      return accept_not_shown;
    case CertificateKind::Worse:
    case CertificateKind::Different:
      return false;
  }
  return false;
}

}  // namespace redline::measure
