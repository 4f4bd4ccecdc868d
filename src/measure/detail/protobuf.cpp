// Writes fields in the order of the calls; protobuf readers accept any order.
#include "measure/detail/protobuf.h"

#include <cstring>

namespace redline::measure {
namespace {

constexpr int kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5;

template <class T>
void append_raw(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

}  // namespace

void ProtoWriter::raw_varint(uint64_t value) {
  while (value >= 0x80) {
    data_.push_back(static_cast<char>((value & 0x7f) | 0x80));
    value >>= 7;
  }
  data_.push_back(static_cast<char>(value));
}

void ProtoWriter::tag(int field, int wire_type) {
  raw_varint((static_cast<uint64_t>(field) << 3) | static_cast<uint64_t>(wire_type));
}

ProtoWriter& ProtoWriter::varint(int field, uint64_t value) {
  tag(field, kVarint);
  raw_varint(value);
  return *this;
}

ProtoWriter& ProtoWriter::fixed32(int field, float value) {
  tag(field, kFixed32);
  append_raw(data_, value);
  return *this;
}

ProtoWriter& ProtoWriter::fixed64(int field, double value) {
  tag(field, kFixed64);
  append_raw(data_, value);
  return *this;
}

ProtoWriter& ProtoWriter::bytes(int field, std::string_view value) {
  tag(field, kLengthDelimited);
  raw_varint(value.size());
  data_.append(value);
  return *this;
}

ProtoWriter& ProtoWriter::packed(int field, std::span<const double> values) {
  tag(field, kLengthDelimited);
  raw_varint(values.size() * sizeof(double));
  for (double value : values) append_raw(data_, value);
  return *this;
}

}  // namespace redline::measure
