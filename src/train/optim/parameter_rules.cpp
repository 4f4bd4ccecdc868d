#include "train/optim/parameter_rules.h"

#include <fmt/format.h>

#include <set>

#include "core/error.h"
#include "core/strings.h"

namespace redline::train {

namespace {

bool is_excluded_by(const std::string& rule, const std::string& name, const torch::Tensor& value) {
  if (rule == "1d") return value.dim() <= 1;
  if (rule == "bias") return name == "bias" || ends_with(name, ".bias");
  return name.find(rule) != std::string::npos;
}

struct GroupOfParameter {
  std::string name;
  double lr_scale = 1.0;
  std::optional<double> weight_decay;
};

std::map<std::string, GroupOfParameter> index_groups(const std::vector<task::ParameterGroup>& groups,
                                                     const std::set<std::string>& known) {
  std::map<std::string, GroupOfParameter> index;
  for (const task::ParameterGroup& group : groups) {
    for (const std::string& name : group.parameters) {
      if (known.count(name) == 0)
        throw ConfigError(
            fmt::format("Parameter group '{}' names '{}', which the model does not have.", group.name, name));
      if (!index.emplace(name, GroupOfParameter{group.name, group.lr_scale, group.weight_decay}).second)
        throw ConfigError(
            fmt::format("Parameter '{}' is in two parameter groups; the second is '{}'.", name, group.name));
    }
  }
  return index;
}

}  // namespace

std::vector<OptimizedParameter> apply_parameter_rules(torch::nn::Module& module,
                                                      const std::vector<task::ParameterGroup>& groups,
                                                      const ParameterRules& rules, std::vector<std::string>* unused) {
  const auto named = module.named_parameters();
  std::set<std::string> known;
  for (const auto& item : named) known.insert(item.key());
  const auto index = index_groups(groups, known);
  std::vector<CustomKey> keys = rules.custom_keys;
  std::sort(keys.begin(), keys.end(), [](const CustomKey& a, const CustomKey& b) {
    return a.key.size() != b.key.size() ? a.key.size() > b.key.size() : a.key < b.key;
  });
  std::set<std::string> used;
  std::vector<OptimizedParameter> result;
  for (const auto& item : named) {
    if (!item.value().requires_grad()) continue;
    OptimizedParameter p{item.key(), item.value(), 1.0, rules.weight_decay};
    if (const auto found = index.find(p.name); found != index.end()) {
      p.group = found->second.name;
      p.lr_scale = found->second.lr_scale;
      p.weight_decay = found->second.weight_decay.value_or(rules.weight_decay);
    }
    for (const std::string& rule : rules.no_decay) {
      if (!is_excluded_by(rule, p.name, p.value)) continue;
      p.weight_decay = 0.0;
      used.insert(rule);
    }
    const auto key = std::find_if(keys.begin(), keys.end(),
                                  [&](const CustomKey& k) { return p.name.find(k.key) != std::string::npos; });
    if (key != keys.end()) {
      p.lr_scale *= key->lr_mult;
      p.weight_decay *= key->decay_mult;
      used.insert(key->key);
    }
    result.push_back(std::move(p));
  }
  if (result.empty()) throw ConfigError("The model has no trainable parameter: nothing to optimise.");
  if (unused != nullptr) {
    for (const std::string& rule : rules.no_decay)
      if (used.count(rule) == 0) unused->push_back(rule);
    for (const CustomKey& k : rules.custom_keys)
      if (used.count(k.key) == 0) unused->push_back(k.key);
  }
  return result;
}

}  // namespace redline::train
