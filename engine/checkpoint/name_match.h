// How the names in a weight file become the names of the model.
//
// Wrappers put prefixes before every name (`module.` by DistributedDataParallel, `_orig_mod.` by
// torch.compile), and base models are saved without theirs (`transformer.`, `model.`). The rule
// that is found holds for all names of a file: a mix is not guessed at.
//
// Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "engine/model/model_shape.h"

namespace marea {

struct NameRule {
  std::string strip;  // before every name of the file
  std::string add;    // to be put before every name but lm_head.weight

  bool identity() const { return strip.empty() && add.empty(); }
  // REQUIRES: `name` starts with `strip`.
  std::string ToModel(std::string_view name) const;
};

// The rule under which most names of the file are names of the model; the identity if none helps.
NameRule FindNameRule(const std::vector<std::string>& file_names,
                      const std::unordered_set<std::string>& model_names);

// Buffers in the files of some models that hold no weights.
bool IsIgnoredBuffer(std::string_view name);

// Whether one name is the other with something before it.
bool SameButForPrefix(std::string_view a, std::string_view b);

}  // namespace marea
