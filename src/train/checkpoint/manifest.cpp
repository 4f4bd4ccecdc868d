// Text of the manifest, strict both ways: the parser accepts only documents whose own checksum and structure agree,
// because a manifest that is "nearly right" would vouch for the wrong bytes.
#include "train/checkpoint/manifest.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <set>

#include "core/check.h"
#include "measure/strict_json.h"
#include "train/checkpoint/block_reader.h"

namespace redline::train {
namespace {

using OrderedJson = measure::StrictOrderedJson;

constexpr std::string_view kManifestTailBegin = ",\n\"manifest_crc32c\":\"";
constexpr std::string_view kManifestTailEnd = "\"}\n";

std::string hex32(uint32_t value) {
  char text[9];
  std::snprintf(text, sizeof(text), "%08x", value);
  return text;
}

std::string manifest_tail(std::string_view body) {
  std::string tail(kManifestTailBegin);
  tail += hex32(crc32c(std::as_bytes(std::span(body))));
  tail += kManifestTailEnd;
  return tail;
}

[[noreturn]] void refuse_manifest(const std::filesystem::path& path, const std::string& reason) {
  throw DamagedError({path, 0, reason});
}

bool plain_file_name(const std::string& name) {
  return !name.empty() && name.size() < 256 && name[0] != '.' && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos && name != kManifestName;
}

bool lower_hex(std::string_view text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

FileDigest parse_digest(const OrderedJson& node, const std::filesystem::path& path) {
  FileDigest digest;
  digest.name = node.at("name").get<std::string>();
  if (!node.at("bytes").is_number_unsigned()) refuse_manifest(path, "the size of a file is no whole number");
  digest.bytes = node.at("bytes").get<uint64_t>();
  digest.sha256 = node.at("sha256").get<std::string>();
  if (!plain_file_name(digest.name)) refuse_manifest(path, "a file name is not a plain name");
  if (!lower_hex(digest.sha256, 64)) refuse_manifest(path, "a SHA-256 is not 64 hexadecimal digits");
  for (const OrderedJson& sum : node.at("crc32c")) {
    const std::string& text = sum.get_ref<const std::string&>();
    uint32_t value = 0;
    if (!lower_hex(text, 8)) refuse_manifest(path, "a CRC32C is not 8 hexadecimal digits");
    std::from_chars(text.data(), text.data() + 8, value, 16);
    digest.crc32c.push_back(value);
  }
  if (digest.bytes > (uint64_t{1} << 60) || digest.crc32c.size() != block_count(digest.bytes)) {
    refuse_manifest(path, "the number of checksums of '" + digest.name + "' does not fit its size");
  }
  return digest;
}

Manifest parse_manifest_json(const OrderedJson& root, const std::filesystem::path& path) {
  if (root.at("format") != "redline checkpoint")
    refuse_manifest(path, "it is not the manifest of a redline checkpoint");
  const int64_t version = root.at("version").get<int64_t>();
  if (version != kManifestVersion) {
    throw CheckpointError(path.string() + " has version " + std::to_string(version) + ", this program knows version " +
                          std::to_string(kManifestVersion) + "; use the redline that wrote it.");
  }
  if (root.at("block_bytes").get<uint64_t>() != kBlockBytes) refuse_manifest(path, "block_bytes is not 1048576");
  Manifest manifest;
  manifest.step = root.at("step").get<int64_t>();
  if (manifest.step < 0) refuse_manifest(path, "its step is " + std::to_string(manifest.step) + ", steps count from 0");
  manifest.monitor = root.at("monitor").get<std::string>();
  if (const OrderedJson& metric = root.at("metric"); !metric.is_null()) {
    // Numbers that JSON lacks are texts: "nan", "inf", "-inf".
    manifest.metric = metric.is_string() ? std::stod(metric.get<std::string>()) : metric.get<double>();
  }
  manifest.created = root.at("created").get<std::string>();
  std::set<std::string> names;
  for (const OrderedJson& node : root.at("files")) {
    manifest.files.push_back(parse_digest(node, path));
    if (!names.insert(manifest.files.back().name).second) refuse_manifest(path, "it lists a file twice");
  }
  return manifest;
}

}  // namespace

const FileDigest* Manifest::find(std::string_view name) const {
  for (const FileDigest& file : files) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

std::string manifest_text(const Manifest& manifest) {
  OrderedJson metric = nullptr;
  if (manifest.metric) {
    const double value = *manifest.metric;
    if (std::isfinite(value)) {
      metric = value;
    } else {
      metric = std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
    }
  }
  std::string body = "{\"format\":\"redline checkpoint\",\n\"version\":" + std::to_string(kManifestVersion);
  auto member = [&](const char* name, const OrderedJson& value) {
    body += ",\n\"", body += name, body += "\":", body += value.dump();
  };
  member("step", manifest.step);
  member("monitor", manifest.monitor);
  member("metric", metric);
  member("created", manifest.created);
  member("block_bytes", kBlockBytes);
  body += ",\n\"files\":[";
  for (const FileDigest& file : manifest.files) {
    OrderedJson sums = OrderedJson::array();
    for (uint32_t sum : file.crc32c) sums.push_back(hex32(sum));
    const OrderedJson node = {{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}, {"crc32c", sums}};
    body += &file == manifest.files.data() ? "\n" : ",\n";
    body += node.dump();
  }
  body += "]";
  return body + manifest_tail(body);
}

Manifest parse_manifest(std::string_view text, const std::filesystem::path& path) {
  const size_t tail_size = kManifestTailBegin.size() + 8 + kManifestTailEnd.size();
  if (text.size() <= tail_size) refuse_manifest(path, "it is truncated (" + std::to_string(text.size()) + " bytes)");
  const std::string_view body = text.substr(0, text.size() - tail_size);
  if (text.substr(body.size()) != manifest_tail(body)) refuse_manifest(path, "its own CRC32C does not fit its text");
  try {
    return parse_manifest_json(OrderedJson::parse(text), path);
  } catch (const OrderedJson::exception& error) {
    refuse_manifest(path, std::string("its JSON is not that of a manifest: ") + error.what());
  } catch (const std::logic_error&) {  // std::stod
    refuse_manifest(path, "its metric is no number");
  }
}

std::vector<uint32_t> block_checksums(std::span<const std::byte> bytes) {
  std::vector<uint32_t> sums;
  for (size_t at = 0; at < bytes.size(); at += kBlockBytes)
    sums.push_back(crc32c(bytes.subspan(at, std::min<size_t>(kBlockBytes, bytes.size() - at))));
  return sums;
}

// The disk likes long writes; the caches like what was written to be digested soon.
constexpr size_t kBlocksAtOnce = 4;

DigestFile::DigestFile(WritableFile& inner, std::string name) : inner_(inner) { digest_.name = std::move(name); }

void DigestFile::emit(std::span<const std::byte> blocks) {
  inner_.write(blocks);
  digest_.bytes += blocks.size();
  for (const uint32_t sum : block_checksums(blocks)) digest_.crc32c.push_back(sum);
  sha_.update(blocks);
}

void DigestFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (pending_.empty() && bytes.size() >= kBlockBytes) {
      const size_t whole = std::min<size_t>(kBlocksAtOnce, bytes.size() / kBlockBytes) * kBlockBytes;
      emit(bytes.first(whole));
      bytes = bytes.subspan(whole);
      continue;
    }
    if (pending_.capacity() < kBlockBytes) pending_.reserve(kBlockBytes);
    const size_t count = std::min<size_t>(bytes.size(), kBlockBytes - pending_.size());
    pending_.insert(pending_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
    bytes = bytes.subspan(count);
    if (pending_.size() == kBlockBytes) flush();
  }
}

void DigestFile::flush() {
  if (!pending_.empty()) emit(pending_);
  pending_.clear();
}

void DigestFile::sync() {
  flush();
  inner_.sync();
}

void DigestFile::close() {
  REDLINE_CHECK(pending_.empty(), "a digested file is synced before it is closed");
  inner_.close();
}

FileDigest DigestFile::digest() {
  digest_.sha256 = sha_.finish_hex();
  return digest_;
}

}  // namespace redline::train
