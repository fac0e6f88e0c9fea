#include "src/bench/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>

#include "io/units.h"

namespace marea {
namespace {

constexpr std::array<const char*, kWorkloadKindCount> kNames = {"read", "write", "mixed",
                                                                "random_read", "replay"};

// The blocks of a file in the order in which one direction visits them, round after round.
class BlockOrder {
 public:
  BlockOrder(const RoundShape& shape, IoDirection direction, uint64_t first, bool shuffled)
      : shape_(shape),
        direction_(direction),
        blocks_(DivideRoundUp(shape.file_bytes, shape.block_bytes)),
        first_(first % blocks_) {
    if (!shuffled) return;
    order_.resize(blocks_);
    std::iota(order_.begin(), order_.end(), uint64_t{0});
    std::mt19937_64 random(shape.seed);
    std::shuffle(order_.begin(), order_.end(), random);
  }

  uint64_t blocks() const { return blocks_; }
  uint64_t begun() const { return begun_; }  // since the start, over all rounds
  uint64_t block() const {
    const uint64_t at = (first_ + begun_) % blocks_;
    return order_.empty() ? at : order_[at];
  }
  BenchTransfer Take() {
    const uint64_t taken = block();
    const uint64_t offset = taken * shape_.block_bytes;
    ++begun_;
    return {direction_, shape_.file, offset,
            std::min(shape_.block_bytes, shape_.file_bytes - offset), taken};
  }

 private:
  const RoundShape shape_;
  const IoDirection direction_;
  const uint64_t blocks_;
  const uint64_t first_;
  uint64_t begun_ = 0;
  std::vector<uint64_t> order_;
};

class Rounds final : public Workload {
 public:
  Rounds(WorkloadKind kind, const RoundShape& shape) : shape_(shape) {
    const bool shuffled = kind == WorkloadKind::kRandomRead;
    if (Reads(kind)) orders_.emplace_back(shape, IoDirection::kRead, 0, shuffled);
    if (Writes(kind)) {
      const uint64_t half = shape.file_bytes / shape.block_bytes / 2;
      orders_.emplace_back(shape, IoDirection::kWrite, orders_.empty() ? 0 : half, false);
    }
    busy_.resize(orders_.front().blocks(), false);
  }

  std::optional<BenchTransfer> Next() override {
    BlockOrder& order = orders_[turn_];
    if (ended() || busy_[order.block()]) return std::nullopt;
    const BenchTransfer transfer = order.Take();
    busy_[transfer.id] = true;
    turn_ = (turn_ + 1) % orders_.size();
    return transfer;
  }

  void Done(const BenchTransfer& transfer) override { busy_[transfer.id] = false; }

  void EndAfterRound() override {
    const BlockOrder& last = orders_.back();
    rounds_max_ = DivideRoundUp(std::max<uint64_t>(last.begun(), 1), last.blocks());
  }

  bool ended() const override {
    const BlockOrder& last = orders_.back();
    return turn_ == 0 && rounds_max_ > 0 && last.begun() >= rounds_max_ * last.blocks();
  }

  uint64_t bytes_max() const override { return std::min(shape_.block_bytes, shape_.file_bytes); }

 private:
  const RoundShape shape_;
  std::vector<BlockOrder> orders_;  // take turns
  size_t turn_ = 0;
  std::vector<bool> busy_;   // by block: in flight
  uint64_t rounds_max_ = 0;  // 0: no end
};

}  // namespace

const char* WorkloadName(WorkloadKind kind) {
  return kNames[static_cast<size_t>(kind)];
}

Result<WorkloadKind> ParseWorkload(const std::string& flag, const std::string& text) {
  if (text == "rw" || text == "readwrite") return WorkloadKind::kMixed;
  if (text == "randread" || text == "random-read") return WorkloadKind::kRandomRead;
  for (int kind = 0; kind < kWorkloadKindCount; ++kind) {
    if (text == kNames[kind] && static_cast<WorkloadKind>(kind) != WorkloadKind::kReplay) {
      return static_cast<WorkloadKind>(kind);
    }
  }
  return Status::InvalidArgument(
      fmt::format("{} {}: it is read, write, mixed or random_read", flag, text));
}

bool Reads(WorkloadKind kind) {
  return kind != WorkloadKind::kWrite;
}

bool Writes(WorkloadKind kind) {
  return kind == WorkloadKind::kWrite || kind == WorkloadKind::kMixed ||
         kind == WorkloadKind::kReplay;
}

std::unique_ptr<Workload> MakeRounds(WorkloadKind kind, const RoundShape& shape) {
  MAREA_CHECK(kind != WorkloadKind::kReplay, "a replay follows a plan");
  MAREA_CHECK(shape.file_bytes > 0 && shape.file_bytes % kPageBytes == 0 && shape.block_bytes > 0 &&
                  shape.block_bytes % kPageBytes == 0,
              "a workload moves whole pages");
  return std::make_unique<Rounds>(kind, shape);
}

}  // namespace marea
