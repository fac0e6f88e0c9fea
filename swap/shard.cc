#include "swap/shard.h"

namespace marea {

const char* ShardKindName(ShardKind kind) {
  switch (kind) {
    case ShardKind::kWeight:
      return "weight";
    case ShardKind::kMasterLow:
      return "master_low";
    case ShardKind::kMoment1:
      return "moment1";
    case ShardKind::kMoment2:
      return "moment2";
    case ShardKind::kGradient:
      return "gradient";
    case ShardKind::kPartial:
      return "partial";
    case ShardKind::kActivation:
      return "activation";
    case ShardKind::kScalar:
      return "scalar";
  }
  return "unknown";
}

const char* TierName(Tier tier) {
  switch (tier) {
    case Tier::kVram:
      return "vram";
    case Tier::kRam:
      return "ram";
    case Tier::kNvme:
      return "nvme";
  }
  return "unknown";
}

}  // namespace marea
