#include "swap/plan_cells.h"

#include <algorithm>
#include <array>

namespace marea {
namespace {

uint32_t IndexOf(const std::vector<uint64_t>& cuts, uint64_t address) {
  return static_cast<uint32_t>(std::lower_bound(cuts.begin(), cuts.end(), address) - cuts.begin());
}

}  // namespace

PlanCells::PlanCells(const StepPlan& plan) {
  std::array<std::vector<uint64_t>, kSpaceCount> cuts;
  for (const Op& op : plan.ops) {
    for (const Access& access : op.accesses) {
      const Buffer& buffer = plan.buffers[access.buffer];
      std::vector<uint64_t>& space = cuts[static_cast<int>(buffer.space)];
      space.push_back(buffer.offset + access.offset);
      space.push_back(buffer.offset + access.offset + access.bytes);
    }
  }
  std::array<uint32_t, kSpaceCount> first{};
  for (int space = 0; space < kSpaceCount; ++space) {
    std::sort(cuts[space].begin(), cuts[space].end());
    cuts[space].erase(std::unique(cuts[space].begin(), cuts[space].end()), cuts[space].end());
    first[space] = count_;
    count_ += static_cast<uint32_t>(cuts[space].size());
  }
  ranges_.resize(plan.ops.size());
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    for (const Access& access : plan.ops[i].accesses) {
      const Buffer& buffer = plan.buffers[access.buffer];
      const int space = static_cast<int>(buffer.space);
      const uint64_t begin = buffer.offset + access.offset;
      ranges_[i].push_back({first[space] + IndexOf(cuts[space], begin),
                            first[space] + IndexOf(cuts[space], begin + access.bytes)});
    }
  }
}

}  // namespace marea
