// A boxed fallback on a dispatch key below autograd sees every call that reaches a kernel. LibTorch keeps the key Fake
// for a mode that tests of its own use in C++; here it is switched on by a guard on this thread only, and costs nothing
// when it is off.
#include "train/compile/operator_recorder.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>
#include <torch/library.h>

#include <cmath>
#include <set>

#include "core/check.h"

namespace redline::train {

using nlohmann::json;

namespace {

constexpr c10::DispatchKey kRecording = c10::DispatchKey::Fake;

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

std::string format_name(c10::MemoryFormat format) {
  switch (format) {
    case c10::MemoryFormat::Contiguous:
      return "contiguous_format";
    case c10::MemoryFormat::ChannelsLast:
      return "channels_last";
    case c10::MemoryFormat::ChannelsLast3d:
      return "channels_last_3d";
    default:
      return "preserve_format";
  }
}

json number_json(double value) {
  if (std::isfinite(value)) return value;
  return {{"float", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"}};
}

json scalar_json(const c10::Scalar& value) {
  if (value.isBoolean()) return value.toBool();
  if (value.isIntegral(/*includeBool=*/false)) return value.toLong();
  return number_json(value.toDouble());
}

}  // namespace

std::string dtype_name(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat32:
      return "float32";
    case torch::kFloat64:
      return "float64";
    case torch::kBFloat16:
      return "bfloat16";
    case torch::kHalf:
      return "float16";
    case torch::kInt64:
      return "int64";
    case torch::kInt32:
      return "int32";
    case torch::kInt16:
      return "int16";
    case torch::kInt8:
      return "int8";
    case torch::kUInt8:
      return "uint8";
    case torch::kBool:
      return "bool";
    default:
      throw CannotCompile(fmt::format("it has tensors of the type {}", torch::toString(type)));
  }
}

json layout_json(const torch::Tensor& tensor) {
  return {{"shape", tensor.sizes().vec()},
          {"stride", tensor.strides().vec()},
          {"dtype", dtype_name(tensor.scalar_type())},
          {"device", tensor.device().str()}};
}

struct OperatorRecorder::State {
  // Tensors and storages are held weakly: their memory is freed as in any step, but no other gets their address.
  struct Known {
    int64_t number;
    WeakTensor tensor;
  };
  struct View {
    int64_t number, offset;
    std::vector<int64_t> sizes, strides;
    torch::ScalarType type;
  };
  struct Memory {
    WeakStorage storage;
    std::vector<View> views;
    bool unwritten = false, input = false;
  };

  std::map<const c10::TensorImpl*, Known> tensors;
  std::map<const c10::StorageImpl*, Memory> memory;
  std::set<int64_t> read;
  int64_t next = 0;
  RecordedProgram program;

  int64_t add(const torch::Tensor& tensor) {
    const int64_t number = next++;
    tensors.insert_or_assign(tensor.unsafeGetTensorImpl(), Known{number, WeakTensor(tensor.getIntrusivePtr())});
    if (tensor.has_storage()) {
      const auto& storage = tensor.storage();
      auto [at, fresh] =
          memory.try_emplace(storage.unsafeGetStorageImpl(), Memory{WeakStorage(storage.getWeakStorageImpl()), {}});
      at->second.views.push_back(
          {number, tensor.storage_offset(), tensor.sizes().vec(), tensor.strides().vec(), tensor.scalar_type()});
    }
    return number;
  }

  // Autograd hands saved results back as new tensors over the same memory: those are told by their memory.
  int64_t find(const torch::Tensor& tensor) {
    if (const auto known = tensors.find(tensor.unsafeGetTensorImpl()); known != tensors.end())
      return known->second.number;
    if (!tensor.has_storage()) throw CannotCompile("it has tensors without memory of their own");
    const auto found = memory.find(tensor.storage().unsafeGetStorageImpl());
    if (found == memory.end()) {
      const int64_t number = add(tensor);
      program.constants[number] = tensor.detach().clone();
      return number;
    }
    const View* same_type = nullptr;
    for (const View& view : found->second.views) {
      if (view.type != tensor.scalar_type()) continue;
      same_type = &view;
      if (view.offset == tensor.storage_offset() && view.sizes == tensor.sizes() && view.strides == tensor.strides()) {
        tensors.insert_or_assign(tensor.unsafeGetTensorImpl(),
                                 Known{view.number, WeakTensor(tensor.getIntrusivePtr())});
        return view.number;
      }
    }
    if (same_type == nullptr) throw CannotCompile("it reads memory of one type as another");
    const int64_t base = same_type->number, number = add(tensor);
    program.calls.push_back({{"op", "aten::as_strided"},
                             {"overload", ""},
                             {"args",
                              {json{{"t", base}}, json{{"list", tensor.sizes().vec()}},
                               json{{"list", tensor.strides().vec()}}, tensor.storage_offset()}},
                             {"out", {number}}});
    read.insert(base);
    return number;
  }

  json tensor_json(const torch::Tensor& tensor) {
    if (!tensor.defined()) return nullptr;
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number() && !tensors.count(tensor.unsafeGetTensorImpl()))
      return scalar_json(read_number(tensor));
    const int64_t number = find(tensor);
    read.insert(number);
    return {{"t", number}};
  }

  static c10::Scalar read_number(const torch::Tensor& tensor) {
    const c10::impl::ExcludeDispatchKeyGuard quiet(kRecording);
    return tensor.item();
  }

  json value_json(const c10::IValue& value, const c10::Type& type) {
    using Kind = c10::TypeKind;
    if (value.isNone()) return nullptr;
    if (type.kind() == Kind::OptionalType)
      return value_json(value, *type.expectRef<c10::OptionalType>().getElementType());
    if (value.isTensor()) return tensor_json(value.toTensor());
    switch (type.kind()) {
      case Kind::ScalarTypeType:
        return {{"dtype", dtype_name(value.toScalarType())}};
      case Kind::MemoryFormatType:
        return {{"format", format_name(value.toMemoryFormat())}};
      case Kind::LayoutType:
        return {{"layout", "strided"}};
      case Kind::DeviceObjType:
        return {{"device", value.toDevice().str()}};
      default:
        break;
    }
    if (value.isBool()) return value.toBool();
    if (value.isInt()) return value.toInt();
    if (value.isDouble()) return number_json(value.toDouble());
    if (value.isString()) return {{"text", value.toStringRef()}};
    if (value.isDevice()) return {{"device", value.toDevice().str()}};
    if (value.isScalar()) return scalar_json(value.toScalar());
    if (value.isList()) {
      json list = json::array();
      const c10::TypePtr inner = type.kind() == Kind::ListType ? type.expectRef<c10::ListType>().getElementType()
                                                               : value.toList().elementType();
      for (const c10::IValue& item : value.toListRef()) list.push_back(value_json(item, *inner));
      return {{"list", std::move(list)}};
    }
    throw CannotCompile(fmt::format("it passes a {} to an operator", value.tagKind()));
  }

  void refuse_what_hides(const c10::OperatorHandle& op) {
    const std::string& name = op.operator_name().name;
    if (op.hasTag(at::Tag::data_dependent_output) || name == "aten::_local_scalar_dense")
      throw CannotCompile(fmt::format("it reads a value on the host ({})", name));
    if (op.hasTag(at::Tag::dynamic_output_shape))
      throw CannotCompile(fmt::format("a size in it depends on values ({})", name));
    if (op.hasTag(at::Tag::nondeterministic_seeded))
      throw CannotCompile(fmt::format("it draws from a global generator ({})", name));
  }

  Memory* memory_of(const torch::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return nullptr;
    const auto found = memory.find(tensor.storage().unsafeGetStorageImpl());
    return found == memory.end() ? nullptr : &found->second;
  }
  Memory* memory_of(const c10::IValue& value) { return value.isTensor() ? memory_of(value.toTensor()) : nullptr; }

  // Memory that an operator made without filling it, and that then holds something, was filled behind our back. And a
  // step leaves what it is given as it is: weights change at commit, and a piece may be computed more than once.
  void check_written(const c10::FunctionSchema& schema, at::ArrayRef<c10::IValue> arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      Memory* memory_here = memory_of(arguments[i]);
      if (memory_here == nullptr) continue;
      const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
      const bool writes = alias != nullptr && alias->isWrite();
      if (writes && memory_here->input)
        throw CannotCompile(fmt::format("it writes into a tensor that it is given ({})", schema.name()));
      if (!memory_here->unwritten) continue;
      if (writes) memory_here->unwritten = false;
      if (alias != nullptr || schema.name().find("_like") != std::string::npos || schema.name().find("aten::new_") == 0)
        continue;
      throw CannotCompile(fmt::format("a kernel that no compiler can see through makes what {} reads", schema.name()));
    }
  }

  void call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    refuse_what_hides(op);
    const c10::FunctionSchema& schema = op.schema();
    const size_t count = schema.arguments().size();
    const std::vector<c10::IValue> arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
    check_written(schema, arguments);
    json args = json::array();
    for (size_t i = 0; i < count; ++i) args.push_back(value_json(arguments[i], *schema.arguments()[i].real_type()));
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kRecording), stack);
    const size_t results = schema.returns().size();
    json out = json::array(), layouts = json::array();
    for (size_t i = 0; i < results; ++i) {
      const c10::IValue& value = (*stack)[stack->size() - results + i];
      json numbers = json::array();
      if (value.isTensorList()) {
        for (const torch::Tensor& item : value.toTensorVector()) numbers.push_back(made(item));
        out.push_back({{"list", std::move(numbers)}});
      } else if (value.isTensor()) {
        out.push_back(made(value.toTensor()));
        if (value.toTensor().defined()) layouts.push_back(layout_json(value.toTensor()));
      } else {
        throw CannotCompile(fmt::format("{} returns a {}", schema.name(), value.tagKind()));
      }
    }
    const std::string& name = op.operator_name().name;
    json line = {{"op", name},
                 {"overload", op.operator_name().overload_name},
                 {"args", std::move(args)},
                 {"out", std::move(out)}};
    if (name.rfind("aten::", 0) != 0) {
      program.own_operators[name] = c10::toString(schema);
      line["layouts"] = std::move(layouts);  // whoever compiles has no kernel of ours: it learns the results from here
    }
    program.calls.push_back(std::move(line));
    if (name.rfind("aten::empty", 0) == 0 || name.rfind("aten::new_empty", 0) == 0)
      if (Memory* fresh = memory_of(stack->back())) fresh->unwritten = true;
  }

  json made(const torch::Tensor& tensor) {
    if (!tensor.defined()) return nullptr;
    if (const auto known = tensors.find(tensor.unsafeGetTensorImpl()); known != tensors.end())
      return known->second.number;  // in place
    return add(tensor);
  }
};

namespace {

thread_local OperatorRecorder::State* active = nullptr;

void record_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard quiet(kRecording);
  if (active != nullptr)
    active->call(op, keys, stack);
  else
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kRecording), stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, Fake, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&record_call>()); }

OperatorRecorder::OperatorRecorder() : state_(std::make_unique<State>()) {}
OperatorRecorder::~OperatorRecorder() = default;

OperatorRecorder::Pause::Pause() : was_excluded_(c10::impl::tls_is_dispatch_key_excluded(kRecording)) {
  c10::impl::tls_set_dispatch_key_excluded(kRecording, true);
}
OperatorRecorder::Pause::~Pause() { c10::impl::tls_set_dispatch_key_excluded(kRecording, was_excluded_); }

int64_t OperatorRecorder::input(const torch::Tensor& tensor) {
  REDLINE_CHECK(tensor.defined(), "an input is a tensor");
  const auto known = state_->tensors.find(tensor.unsafeGetTensorImpl());
  if (known != state_->tensors.end()) return known->second.number;
  const int64_t number = state_->add(tensor);
  if (State::Memory* const memory = state_->memory_of(tensor)) memory->input = true;
  return number;
}

void OperatorRecorder::run(const std::function<void()>& code) {
  REDLINE_CHECK(active == nullptr, "one recorder at a time in a thread");
  struct Leave {
    ~Leave() { active = nullptr; }
  } const leave;
  active = state_.get();
  const c10::impl::IncludeDispatchKeyGuard recording(kRecording);
  code();
}

int64_t OperatorRecorder::number_of(const torch::Tensor& tensor) {
  const int64_t number = state_->find(tensor);
  state_->read.insert(number);
  return number;
}

bool OperatorRecorder::was_read(int64_t input) const { return state_->read.count(input) != 0; }

RecordedProgram OperatorRecorder::take() { return std::move(state_->program); }

}  // namespace redline::train
