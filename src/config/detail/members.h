// From Node to a member and back, for the types a field table may hold. Included at the end of config/fields.h.
// The parsing itself is in members.cpp, so that a table costs little to compile.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "config/fields.h"

namespace redline::config::detail {

bool read_bool(const Node& value, const Row& row, const std::string& path);
int64_t read_int(const Node& value, const Row& row, const std::string& path, int64_t lowest, int64_t highest);
double read_number(const Node& value, const Row& row, const std::string& path);
std::string read_string(const Node& value, const Row& row, const std::string& path);
// The items of a list. A flag may write "a,b"; a list of strings may be written as one string.
std::vector<Node> read_items(const Node& value, const Row& row, const std::string& path, bool of_strings);

Node bool_node(bool value);
Node int_node(int64_t value);
Node number_node(double value);

template <class M>
struct MemberKind {
  static constexpr bool kIsList = false, kIsOptional = false, kIsAuto = false;
};
template <class T>
struct MemberKind<std::vector<T>> {
  static constexpr bool kIsList = true, kIsOptional = false, kIsAuto = false;
  using Inner = T;
};
template <class T>
struct MemberKind<std::optional<T>> {
  static constexpr bool kIsList = false, kIsOptional = true, kIsAuto = false;
  using Inner = T;
};
template <class T>
struct MemberKind<Auto<T>> {
  static constexpr bool kIsList = false, kIsOptional = false, kIsAuto = true;
  using Inner = T;
};

template <class M>
void set_member(M& member, const Node& value, const Row& row, const std::string& path) {
  using Kind = MemberKind<M>;
  if constexpr (std::is_same_v<M, Node>) {
    member = value;
  } else if constexpr (std::is_same_v<M, bool>) {
    member = read_bool(value, row, path);
  } else if constexpr (std::is_integral_v<M>) {
    static_assert(std::is_signed_v<M>, "options are signed integers, so that a negative value is seen and refused");
    member = static_cast<M>(read_int(value, row, path, std::numeric_limits<M>::min(), std::numeric_limits<M>::max()));
  } else if constexpr (std::is_floating_point_v<M>) {
    member = static_cast<M>(read_number(value, row, path));
  } else if constexpr (std::is_same_v<M, std::string>) {
    member = read_string(value, row, path);
  } else if constexpr (Kind::kIsOptional) {
    if (value.is_null()) {
      member.reset();
    } else {
      typename Kind::Inner inner{};
      set_member(inner, value, row, path);
      member = std::move(inner);
    }
  } else if constexpr (Kind::kIsAuto) {
    if (value.is_scalar() && value.text() == "auto") {
      member = M();
    } else {
      typename Kind::Inner inner{};
      set_member(inner, value, row, path);
      member.set(std::move(inner));
    }
  } else {
    static_assert(Kind::kIsList, "see the list of member types at the top of config/fields.h");
    M items;
    for (const Node& item : read_items(value, row, path, std::is_same_v<typename Kind::Inner, std::string>)) {
      typename Kind::Inner inner{};
      set_member(inner, item, row, path);
      items.push_back(std::move(inner));
    }
    member = std::move(items);
  }
}

template <class M>
Node get_member(const M& member) {
  using Kind = MemberKind<M>;
  if constexpr (std::is_same_v<M, Node>) {
    return member;
  } else if constexpr (std::is_same_v<M, bool>) {
    return bool_node(member);
  } else if constexpr (std::is_integral_v<M>) {
    return int_node(member);
  } else if constexpr (std::is_floating_point_v<M>) {
    return number_node(member);
  } else if constexpr (std::is_same_v<M, std::string>) {
    return Node::scalar(member, true);
  } else if constexpr (Kind::kIsOptional) {
    return member ? get_member(*member) : Node();
  } else if constexpr (Kind::kIsAuto) {
    return member.is_auto() ? Node::scalar("auto") : get_member(member.value());
  } else {
    std::vector<Node> items;
    for (const auto& item : member) items.push_back(get_member<typename Kind::Inner>(item));
    return Node::list(std::move(items));
  }
}

template <class M>
std::string type_name() {
  using Kind = MemberKind<M>;
  if constexpr (std::is_same_v<M, Node>)
    return "node";
  else if constexpr (std::is_same_v<M, bool>)
    return "bool";
  else if constexpr (std::is_integral_v<M>)
    return "int";
  else if constexpr (std::is_floating_point_v<M>)
    return "number";
  else if constexpr (std::is_same_v<M, std::string>)
    return "string";
  else if constexpr (Kind::kIsOptional)
    return "null|" + type_name<typename Kind::Inner>();
  else if constexpr (Kind::kIsAuto)
    return "auto|" + type_name<typename Kind::Inner>();
  else
    return "list of " + type_name<typename Kind::Inner>();
}

}  // namespace redline::config::detail
