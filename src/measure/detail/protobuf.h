// Enough of protobuf's wire format to write messages: varints, fixed 32 and 64 bit, strings, packed doubles.
// Source: protobuf.dev/programming-guides/encoding.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace redline::measure {

class ProtoWriter {
 public:
  ProtoWriter& varint(int field, uint64_t value);
  ProtoWriter& fixed32(int field, float value);
  ProtoWriter& fixed64(int field, double value);
  ProtoWriter& bytes(int field, std::string_view value);  // strings and sub-messages
  ProtoWriter& packed(int field, std::span<const double> values);
  const std::string& data() const { return data_; }

 private:
  void tag(int field, int wire_type);
  void raw_varint(uint64_t value);
  std::string data_;
};

}  // namespace redline::measure
