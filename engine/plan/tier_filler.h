// Fills the tiers: rings first, then homes by value, VRAM before RAM, the rest to NVMe.
//
// Used by the planner alone; pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/plan/plan_spec.h"
#include "io/status.h"

namespace marea {

struct TierLimits {
  uint64_t vram_bytes = 0;
  bool vram_inside_ram = false;  // then VRAM counts against ram_bytes too
  uint64_t ram_bytes = 0;
  uint64_t ram_fixed_bytes = 0;
  uint64_t workspace_bytes = 0;   // of VRAM
  uint64_t vram_fixed_bytes = 0;  // of VRAM
  // Put groups into VRAM whole, with all their states, where the GPU updates them in place.
  bool whole_groups_in_vram = false;
  uint64_t nvme_bytes = 0;  // 0: no NVMe
  uint32_t slots = 2;
  uint64_t chunk_elements_min = 0;
  uint64_t chunk_elements_max = 0;
  uint64_t staged_chunks = 0;
  uint64_t staging_share = 0;
};

// Sets chunk_elements, ring sizes and placement of `spec`, whose model, precision, wave size and
// placement.activation are given. `weight_home` and `state_home` are hard. DoesNotFit names the
// budget, what is needed at least, and the remedy.
Status FillTiers(const TierLimits& limits, std::optional<Tier> weight_home,
                 std::optional<Tier> state_home, PlanSpec& spec);

std::string NvmeShortage(uint64_t needed_bytes, uint64_t given_bytes);

}  // namespace marea
