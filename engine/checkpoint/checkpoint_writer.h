// Writes a Hugging Face folder, `<output>/checkpoint/` at the end of a run: config.json as it was
// loaded, byte for byte, and model.safetensors.
//
// Whole or not at all: the files are written and synced in `<folder>.partial`, which then takes the
// folder's name; a folder that was there before stays complete until that moment and is then
// removed. The folder is marea's own: nothing else in it survives.
//
// Thread rule: one thread at a time per folder.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "engine/model/model_shape.h"
#include "io/status.h"

namespace marea {

// Fills `out` with elements [first_element, first_element + out.size() / WeightBytes) of `tensor`,
// counted within the tensor, in the precision given to WriteCheckpoint. `group` is the tensor's
// group in ModelShape::groups. Called in model order, ascending, at most kCheckpointPieceBytes a
// call.
using TensorSource = std::function<Status(uint32_t group, const TensorShape& tensor,
                                          uint64_t first_element, std::span<std::byte> out)>;

inline constexpr uint64_t kCheckpointPieceBytes = uint64_t{16} << 20;

// Space is reserved before the first call of `source`: a full disk is Io with path and bytes. An
// error of `source` is passed on. On any failure `folder` is unchanged and nothing else remains.
// The parent folder is created if missing. Blocks.
Status WriteCheckpoint(const std::string& folder, const std::string& config_text,
                       const ModelShape& shape, Precision precision, const TensorSource& source);

}  // namespace marea
