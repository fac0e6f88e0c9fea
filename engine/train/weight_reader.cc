#include "engine/train/weight_reader.h"

#include <algorithm>
#include <vector>

namespace marea {
namespace {

// What rank 0 asks for, in elements; a count of 0 ends it.
struct Question {
  uint64_t group;
  uint64_t first;
  uint64_t count;
};

}  // namespace

Status WeightReader::Read(uint32_t group, uint64_t first, std::span<std::byte> out) {
  const GroupShape& shape = spec_.model->groups[group];
  if (!IsPartitioned(spec_.partition, shape, ShardKind::kWeight)) {
    return ReadOwn(group, first, out);
  }
  const uint64_t element_bytes = WeightBytes(spec_.precision);
  const uint64_t part = PartOf(spec_.partition, shape, 0).count;
  while (!out.empty()) {
    const auto rank = static_cast<uint32_t>(first / part);
    const uint64_t count = std::min((rank + 1) * part - first, out.size() / element_bytes);
    const std::span<std::byte> piece = out.first(count * element_bytes);
    MAREA_RETURN_IF_ERROR(rank == spec_.partition.rank ? ReadOwn(group, first, piece)
                                                       : ReadFrom(rank, group, first, piece));
    first += count;
    out = out.subspan(piece.size());
  }
  return Status::Ok();
}

Status WeightReader::ReadOwn(uint32_t group, uint64_t first, std::span<std::byte> out) {
  return shards_.Read(ShardKind::kWeight, group, first * WeightBytes(spec_.precision), out);
}

Status WeightReader::ReadFrom(uint32_t rank, uint32_t group, uint64_t first,
                              std::span<std::byte> out) {
  const Question question{group, first, out.size() / WeightBytes(spec_.precision)};
  MAREA_RETURN_IF_ERROR(lane_->Send(std::as_bytes(std::span(&question, 1)), rank));
  return lane_->Receive(out, rank);
}

Status WeightReader::Finish() {
  const Question end{};
  for (uint32_t rank = 1; rank < spec_.partition.world_size; ++rank) {
    MAREA_RETURN_IF_ERROR(lane_->Send(std::as_bytes(std::span(&end, 1)), rank));
  }
  return Status::Ok();
}

Status WeightReader::Serve() {
  std::vector<std::byte> piece;
  while (true) {
    Question question;
    MAREA_RETURN_IF_ERROR(lane_->Receive(std::as_writable_bytes(std::span(&question, 1)), 0));
    if (question.count == 0) return Status::Ok();
    piece.resize(question.count * WeightBytes(spec_.precision));
    MAREA_RETURN_IF_ERROR(ReadOwn(static_cast<uint32_t>(question.group), question.first, piece));
    MAREA_RETURN_IF_ERROR(lane_->Send(piece, 0));
  }
}

}  // namespace marea
