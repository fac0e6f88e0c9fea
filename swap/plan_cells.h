// The bytes of a plan, cut at every boundary of every access, so that two accesses conflict exactly
// when they share a cell. Offsets must be assigned. Immutable after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "swap/step_plan.h"

namespace marea {

class PlanCells {
 public:
  explicit PlanCells(const StepPlan& plan);

  // The half-open range of cells, numbered through all spaces, that access i of an op covers.
  struct Range {
    uint32_t begin;
    uint32_t end;
  };
  const std::vector<Range>& OfOp(uint32_t op_index) const { return ranges_[op_index]; }
  uint32_t count() const { return count_; }

 private:
  std::vector<std::vector<Range>> ranges_;  // by op, by access
  uint32_t count_ = 0;
};

}  // namespace marea
