// The transfers of a training step as a workload: what the NVMe lanes of a saved plan read and
// write, in the plan's order and depth, with everything between them (copies, kernels, the
// optimizer) done at once.
//
// So the figure is the most that the drives could give this step: it waits where the plan makes a
// transfer wait for another one, and for nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "io/status.h"
#include "src/bench/workload.h"
#include "swap/step_plan.h"

namespace marea {

// What a replay needs of each file, and what it moves.
struct ReplayNeeds {
  std::vector<uint64_t> file_bytes;  // by file, whole pages
  uint64_t read_bytes = 0;           // a step
  uint64_t write_bytes = 0;
  std::vector<uint64_t> file_write_bytes;  // of those, by file
  uint64_t transfer_bytes_max = 0;
  uint32_t in_flight_max = 0;  // transfers
};

// A step that trains and updates. The homes are dealt out over `file_count` files so that each
// carries the same share. InvalidArgument if the plan moves nothing between RAM and NVMe.
// REQUIRES: file_count > 0; `plan` outlives the workload and has been proved (plan_check.h).
class Replay {
 public:
  static Result<Replay> Make(const StepPlan& plan, uint32_t micro_count, uint32_t file_count);

  const ReplayNeeds& needs() const { return needs_; }
  std::unique_ptr<Workload> MakeWorkload() const;

 private:
  Replay(const StepPlan& plan, uint32_t micro_count) : plan_(&plan), micro_count_(micro_count) {}

  struct Home {
    uint64_t begin;  // in the plan's file space
    uint64_t end;
    uint32_t file;
    uint64_t offset;  // in that file
  };
  friend class ReplayWorkload;

  void DealOut(uint32_t file_count);
  const Home& HomeOf(uint64_t begin) const;

  const StepPlan* plan_;
  uint32_t micro_count_;
  ReplayNeeds needs_;
  std::vector<Home> homes_;  // sorted, apart from each other
};

}  // namespace marea
