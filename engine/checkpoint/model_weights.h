// The tensors of a model in a safetensors file, matched by name and shape.
//
// Every tensor of the shape must be there with its dims, and nothing else may be, except: buffers
// that carry no weights (GPT-2's attn.bias and attn.masked_bias masks, rotary inv_freq), and a
// lm_head.weight equal to the embedding that it is tied to (or in its place). A prefix that all
// names share
// (`module.`, `_orig_mod.`), or a base prefix that all lack or have twice (`transformer.`,
// `model.`), is seen through with a notice. A mismatch is one sentence: the first name and a count.
//
// Owner: the caller; borrows nothing. Thread rule: after Open, const calls from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/checkpoint/safetensors.h"
#include "engine/model/model_shape.h"
#include "io/status.h"

namespace marea {

class ModelWeights {
 public:
  // InvalidArgument or Corrupt, naming file and tensor. Reads no weights, except to compare a tied
  // lm_head.weight with the embedding. Blocks.
  static Result<std::unique_ptr<ModelWeights>> Open(const std::string& path,
                                                    const ModelShape& shape);

  // Elements [first, first + count) of `tensor` as float. REQUIRES: `tensor` is of the shape given
  // to Open, the range lies within it. Blocks.
  Status Read(const TensorShape& tensor, uint64_t first, uint64_t count, float* out) const;

  const SafetensorsFile& file() const { return *file_; }
  const std::vector<std::string>& notices() const { return notices_; }

 private:
  explicit ModelWeights(std::unique_ptr<SafetensorsFile> file);
  // Fills entries_, tied_head_ and unexpected_ from the file's names.
  Status Match(const ModelShape& shape);
  Status CheckTiedHead(const ModelShape& shape);
  Status CheckNames(const std::vector<std::string>& missing) const;
  Status CheckTensors(const ModelShape& shape);

  std::unique_ptr<SafetensorsFile> file_;
  std::unordered_map<std::string, const TensorEntry*> entries_;  // by the model's name
  const TensorEntry* tied_head_ = nullptr;  // a lm_head.weight that the model does not have
  std::vector<std::string> unexpected_;     // names of the file
  std::vector<std::string> notices_;
};

}  // namespace marea
