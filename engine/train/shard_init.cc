#include "engine/train/shard_init.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/model/init.h"
#include "engine/optim/split_master.h"

namespace marea {
namespace {

std::span<const std::byte> BytesOf(const auto& values, size_t count) {
  return std::as_bytes(std::span(values)).first(count * sizeof(values[0]));
}

// Elements [first, first + values.size()) of a group, from a file; padding is zero.
Status ReadWeights(const GroupShape& group, const ModelWeights& weights, uint64_t first,
                   std::span<float> values) {
  std::fill(values.begin(), values.end(), 0.0f);
  const uint64_t end = first + values.size();
  for (const TensorShape& tensor : group.tensors) {
    const uint64_t begin = std::max(first, tensor.first_element);
    const uint64_t stop = std::min(end, tensor.first_element + tensor.elements);
    if (begin >= stop) continue;
    MAREA_RETURN_IF_ERROR(weights.Read(tensor, begin - tensor.first_element, stop - begin,
                                       values.data() + (begin - first)));
  }
  return Status::Ok();
}

class Initialiser {
 public:
  Initialiser(const PlanSpec& spec, const ModelWeights* weights, uint64_t seed, uint32_t threads,
              ShardAccess& shards, const ProgressFunction& progress)
      : spec_(spec),
        weights_(weights),
        seed_(seed),
        threads_(threads),
        shards_(shards),
        progress_(progress) {
    for (uint32_t group = 0; group < spec.model->groups.size(); ++group) {
      for (const ShardKind kind : kKinds) {
        if (HasShard(spec, group, kind)) {
          total_ += OwnedBytes(spec, group, kind);
        }
      }
    }
  }

  Status Run() {
    for (uint32_t group = 0; group < spec_.model->groups.size(); ++group) {
      for (const ShardChunk& piece : shards_.Chunks(ShardKind::kWeight, group)) {
        MAREA_RETURN_IF_ERROR(Weights(group, piece));
      }
      for (const ShardKind kind : {ShardKind::kMoment1, ShardKind::kMoment2}) {
        for (const ShardChunk& piece : shards_.Chunks(kind, group)) {
          zeros_.resize(std::max<size_t>(zeros_.size(), piece.bytes));
          MAREA_RETURN_IF_ERROR(
              Write(kind, group, piece.first_byte, std::span(zeros_).first(piece.bytes)));
        }
      }
    }
    return Status::Ok();
  }

 private:
  static constexpr ShardKind kKinds[] = {ShardKind::kWeight, ShardKind::kMasterLow,
                                         ShardKind::kMoment1, ShardKind::kMoment2};

  Status Weights(uint32_t group, const ShardChunk& piece) {
    const uint64_t weight_bytes = WeightBytes(spec_.precision);
    const uint64_t first = piece.first_byte / weight_bytes;
    const size_t count = piece.bytes / weight_bytes;
    values_.resize(count);
    const GroupShape& shape = spec_.model->groups[group];
    if (weights_) {
      MAREA_RETURN_IF_ERROR(ReadWeights(shape, *weights_, first, values_));
    } else {
      FillInitialWeights(shape, seed_, first, values_, threads_);
    }
    if (spec_.precision == Precision::kFp32) {
      return Write(ShardKind::kWeight, group, piece.first_byte, BytesOf(values_, count));
    }
    high_.resize(count);
    low_.resize(count);
    SplitMasters(values_.data(), count, high_.data(), low_.data());
    MAREA_RETURN_IF_ERROR(
        Write(ShardKind::kWeight, group, piece.first_byte, BytesOf(high_, count)));
    if (!HasShard(spec_, group, ShardKind::kMasterLow)) return Status::Ok();
    // Replicated weights have pieces whose other half is another rank's.
    const ElementRange owned = OwnedRange(spec_, group, ShardKind::kMasterLow);
    if (first < owned.first || first >= owned.first + owned.count) return Status::Ok();
    return Write(ShardKind::kMasterLow, group, first * sizeof(uint16_t), BytesOf(low_, count));
  }

  Status Write(ShardKind kind, uint32_t group, uint64_t first_byte,
               std::span<const std::byte> bytes) {
    MAREA_RETURN_IF_ERROR(shards_.Write(kind, group, first_byte, bytes));
    done_ += bytes.size();
    progress_(done_, total_);
    return Status::Ok();
  }

  const PlanSpec& spec_;
  const ModelWeights* weights_;
  const uint64_t seed_;
  const uint32_t threads_;
  ShardAccess& shards_;
  const ProgressFunction& progress_;
  std::vector<float> values_;
  std::vector<uint16_t> high_, low_;
  std::vector<std::byte> zeros_;
  uint64_t done_ = 0, total_ = 0;
};

}  // namespace

Status InitialiseShards(const PlanSpec& spec, const ModelWeights* weights, uint64_t seed,
                        uint32_t threads, ShardAccess& shards, const ProgressFunction& progress) {
  return Initialiser(spec, weights, seed, threads, shards, progress).Run();
}

}  // namespace marea
