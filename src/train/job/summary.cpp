#include "train/job/summary.h"

#include <fmt/format.h>

#include <cxxabi.h>

#include "core/strings.h"

namespace redline::train {

namespace {

int64_t parameters_of(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const torch::Tensor& p : module.parameters()) count += p.numel();
  return count;
}

// "Conformer" from "redline::models::speech::ConformerImpl".
std::string type_of(const torch::nn::Module& module) {
  int status = 0;
  char* text = abi::__cxa_demangle(typeid(module).name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? text : typeid(module).name();
  std::free(text);
  if (const size_t colon = name.rfind("::"); colon != std::string::npos) name = name.substr(colon + 2);
  if (ends_with(name, "Impl")) name.resize(name.size() - 4);
  return name;
}

void add_lines(const torch::nn::Module& module, const std::string& prefix, int depth, std::string& text) {
  for (const auto& child : module.named_children()) {
    const std::string name = prefix.empty() ? child.key() : prefix + "." + child.key();
    text += fmt::format("  {:<40} {:<24} {:>10}\n", name, type_of(*child.value()),
                        format_count(static_cast<double>(parameters_of(*child.value()))));
    if (depth > 1) add_lines(*child.value(), name, depth - 1, text);
  }
}

}  // namespace

ModelSize model_size(torch::nn::Module& module) {
  ModelSize size;
  for (const torch::Tensor& p : module.parameters()) {
    size.parameters += p.numel();
    if (p.requires_grad()) size.trainable += p.numel();
    size.bytes += p.numel() * p.element_size();
  }
  for (const torch::Tensor& b : module.buffers()) {
    size.buffers += b.numel();
    size.bytes += b.numel() * b.element_size();
  }
  return size;
}

std::string model_summary(torch::nn::Module& module, int depth) {
  std::string text = fmt::format("  {:<40} {:<24} {:>10}\n", "name", "type", "parameters");
  add_lines(module, "", depth, text);
  const ModelSize size = model_size(module);
  text += fmt::format("  {} parameters, {} trainable, {}\n", size.parameters, size.trainable,
                      format_bytes(static_cast<uint64_t>(size.bytes)));
  return text;
}

}  // namespace redline::train
