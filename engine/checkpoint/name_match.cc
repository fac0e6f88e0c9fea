#include "engine/checkpoint/name_match.h"

#include <algorithm>

namespace marea {
namespace {

constexpr std::string_view kOutputMatrix = "lm_head.weight";

// The prefix, up to and with its last dot, that all names share; "" if none.
std::string SharedPrefix(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  std::string shared = names.front();
  for (const std::string& name : names) {
    const auto differs = std::mismatch(shared.begin(), shared.end(), name.begin(), name.end());
    shared.erase(differs.first, shared.end());
  }
  const size_t dot = shared.rfind('.');
  return dot == std::string::npos ? std::string() : shared.substr(0, dot + 1);
}

// The first component that all of the model's names but the head share: "transformer.", "model.".
std::string BasePrefix(const std::unordered_set<std::string>& model_names) {
  std::vector<std::string> names;
  std::copy_if(model_names.begin(), model_names.end(), std::back_inserter(names),
               [](const std::string& name) { return name != kOutputMatrix; });
  const std::string shared = SharedPrefix(names);
  return shared.substr(0, shared.find('.') + 1);  // npos + 1 is 0
}

size_t Matches(const NameRule& rule, const std::vector<std::string>& file_names,
               const std::unordered_set<std::string>& model_names) {
  return static_cast<size_t>(std::count_if(
      file_names.begin(), file_names.end(),
      [&](const std::string& name) { return model_names.contains(rule.ToModel(name)); }));
}

}  // namespace

std::string NameRule::ToModel(std::string_view name) const {
  const std::string_view rest = name.substr(strip.size());
  return rest == kOutputMatrix ? std::string(rest) : add + std::string(rest);
}

NameRule FindNameRule(const std::vector<std::string>& file_names,
                      const std::unordered_set<std::string>& model_names) {
  const std::string shared = SharedPrefix(file_names);
  const std::string base = BasePrefix(model_names);
  NameRule best;
  size_t best_matches = Matches(best, file_names, model_names);
  // Fewer changes come first and win where more gain nothing.
  size_t end = 0;
  for (;;) {
    for (const std::string& add : {std::string(), base}) {
      const NameRule rule{shared.substr(0, end), add};
      const size_t matches = Matches(rule, file_names, model_names);
      if (matches > best_matches) {
        best = rule;
        best_matches = matches;
      }
    }
    const size_t dot = shared.find('.', end);
    if (dot == std::string::npos) break;
    end = dot + 1;
  }
  return best;
}

bool IsIgnoredBuffer(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq");
}

bool SameButForPrefix(std::string_view a, std::string_view b) {
  if (a.size() < b.size()) std::swap(a, b);
  return a.size() > b.size() && a.ends_with(b) && a[a.size() - b.size() - 1] == '.';
}

}  // namespace marea
