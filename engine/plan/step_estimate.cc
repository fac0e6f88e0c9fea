#include "engine/plan/step_estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "engine/plan/plan_totals.h"

namespace marea {
namespace {

// Of work through one resource.
LaneTime Over(double work, const Measured& figure) {
  if (work == 0) return {0, {}};
  if (!figure.per_second.has_value()) return {std::nullopt, figure.reason};
  return {work / *figure.per_second, {}};
}

// What two directions of a link give, alone and while both are busy.
struct PairRates {
  Measured first, second;
  Measured both_first, both_second;
};

std::pair<LaneTime, LaneTime> OverBoth(double first, double second, const PairRates& rates) {
  if (first == 0 || second == 0) return {Over(first, rates.first), Over(second, rates.second)};
  const LaneTime first_beside = Over(first, rates.both_first);
  const LaneTime second_beside = Over(second, rates.both_second);
  if (!first_beside.seconds.has_value() || !second_beside.seconds.has_value()) {
    const LaneTime& without = first_beside.seconds.has_value() ? second_beside : first_beside;
    return {without, without};
  }
  const double both = std::min(*first_beside.seconds, *second_beside.seconds);
  LaneTime first_rest = Over(first * (1 - both / *first_beside.seconds), rates.first);
  LaneTime second_rest = Over(second * (1 - both / *second_beside.seconds), rates.second);
  for (LaneTime* const rest : {&first_rest, &second_rest}) {
    if (rest->seconds.has_value()) *rest->seconds += both;
  }
  return {first_rest, second_rest};
}

PairRates PairOf(const DriveRates& rates) {
  return {Measured::Of(rates.read), Measured::Of(rates.write), Measured::Of(rates.mixed_read),
          Measured::Of(rates.mixed_write)};
}

PairRates NoPair(const std::string& reason) {
  return {Measured::Not(reason), Measured::Not(reason), Measured::Not(reason),
          Measured::Not(reason)};
}

// The plan's drives by name; a profile of another machine has other names, and as many drives.
PairRates DrivePair(const MachineProfile& profile, const std::vector<std::string>& paths) {
  if (profile.drives.empty()) return NoPair(profile.no_drives_reason);
  if (paths.size() == 1) {
    for (const ProfiledDrive& drive : profile.drives) {
      if (drive.path == paths.front()) return PairOf(drive.rates);
    }
  }
  if (paths.size() != profile.drives.size()) {
    return NoPair(fmt::format("the plan is for {} NVMe path{} and the profile has {}", paths.size(),
                              paths.size() == 1 ? "" : "s", profile.drives.size()));
  }
  if (paths.size() == 1) return PairOf(profile.drives.front().rates);
  if (!profile.drives_together.has_value()) {
    return NoPair("the profile's nvme_together is null: its drives were not measured side by side");
  }
  return PairOf(*profile.drives_together);
}

PairRates LinkPair(const MachineProfile& profile, bool on_gpu) {
  if (on_gpu) {
    return {profile.figure(MachineFigure::kH2d), profile.figure(MachineFigure::kD2h),
            profile.figure(MachineFigure::kBothH2d), profile.figure(MachineFigure::kBothD2h)};
  }
  // A copy reads and writes each byte; two copies at once share the memory.
  const Measured& ram = profile.figure(MachineFigure::kRamCopy);
  if (!ram.per_second.has_value()) return NoPair(ram.reason);
  const Measured alone = Measured::Of(*ram.per_second / 2);
  const Measured shared = Measured::Of(*ram.per_second / 4);
  return {alone, alone, shared, shared};
}

Measured ComputeRate(const MachineProfile& profile, Precision precision, bool on_gpu) {
  if (on_gpu) {
    return precision == Precision::kBf16
               ? profile.figure(MachineFigure::kGpuBf16)
               : Measured::Not("a profile has no figure for fp32 products on a GPU");
  }
  const Measured& bf16 = profile.figure(MachineFigure::kCpuBf16);
  // A processor that does not multiply bf16 computes in fp32 (engine/model).
  const bool as_bf16 = precision == Precision::kBf16 && bf16.per_second.has_value();
  return as_bf16 ? bf16 : profile.figure(MachineFigure::kCpuFp32);
}

// What a steady turn asks of the lanes that no byte count tells of.
struct ArithmeticWork {
  double flops = 0;
  double cpu_parameters = 0;
};

// Forward is one product for each weight; backward computes most of it again (the head's one op:
// all of it, once) and then two more, for the gradients of its input and of its weights.
double OpFlops(const Op& op, const ModelShape& model) {
  if (op.block == kNone) return 0;
  const BlockShape& block = model.blocks[op.block];
  const bool trainable = std::any_of(block.groups.begin(), block.groups.end(),
                                     [&](uint32_t group) { return !model.groups[group].frozen; });
  switch (op.kind) {
    case OpKind::kForward:
      return block.forward_flops;
    case OpKind::kBackward:
    case OpKind::kForwardBackward:
      return block.recomputed_flops + block.forward_flops * (trainable ? 2 : 1);
    default:
      return 0;
  }
}

ArithmeticWork CountArithmetic(const PlannedRun& planned, const StepMask& mask) {
  ArithmeticWork work;
  const uint64_t weight_bytes = ElementBytes(planned.spec, ShardKind::kWeight);
  for (const Op& op : planned.plan.ops) {
    if (!Active(op, mask)) continue;
    work.flops += OpFlops(op, *planned.spec.model);
    if (op.kind == OpKind::kUpdate && op.lane == Lane::kCpu) {
      work.cpu_parameters += static_cast<double>(op.accesses.front().bytes / weight_bytes);
    }
  }
  return work;
}

// That arrive at this rank: of what a collective covers, all but its own part.
double ArrivingBytes(const PlannedRun& planned, const StepMask& mask) {
  const uint32_t ranks = planned.spec.partition.world_size;
  double bytes = 0;
  for (const Op& op : planned.plan.ops) {
    if (op.lane == Lane::kComm && Active(op, mask)) {
      bytes += static_cast<double>(op.accesses.back().bytes) * (ranks - 1) / ranks;
    }
  }
  return bytes;
}

constexpr bool SharesCores(Lane lane) {
  return lane == Lane::kCompute || lane == Lane::kCpu || lane == Lane::kH2d || lane == Lane::kD2h;
}

// What takes longest, and its slowest lane.
void Conclude(bool on_gpu, StepEstimate* estimate) {
  double longest = 0;
  double slowest_on_cores = 0;
  std::optional<Lane> slowest_core_lane;
  for (int i = 0; i < kLaneCount; ++i) {
    const Lane lane = static_cast<Lane>(i);
    const double seconds = estimate->lanes[i].seconds.value_or(0);
    if (!on_gpu && SharesCores(lane)) {
      estimate->cpu_seconds += seconds;
      if (seconds > slowest_on_cores) slowest_core_lane = lane;
      slowest_on_cores = std::max(slowest_on_cores, seconds);
    } else if (seconds > longest) {
      longest = seconds;
      estimate->bound_by = lane;
    }
  }
  if (estimate->cpu_seconds > longest) estimate->bound_by = slowest_core_lane;
  estimate->step_seconds = std::max(longest, estimate->cpu_seconds);
}

}  // namespace

StepEstimate EstimateStep(const PlannedRun& planned, const MachineProfile& profile,
                          const EstimateRequest& request) {
  const StepMask mask = SteadyTurn(planned.spec.micro_count);
  const PlannedLanes counted = CountLanes(planned.plan, mask);
  const ArithmeticWork arithmetic = CountArithmetic(planned, mask);
  const double node = request.ranks_per_node;
  const double processor = request.on_gpu ? 1 : node;  // ranks on a device that is not theirs alone
  const auto bytes = [&](Lane lane) {
    return static_cast<double>(counted[static_cast<int>(lane)].bytes);
  };
  StepEstimate estimate;
  const auto time = [&](Lane lane) -> LaneTime& { return estimate.lanes[static_cast<int>(lane)]; };
  std::tie(time(Lane::kNvmeRead), time(Lane::kNvmeWrite)) =
      OverBoth(node * bytes(Lane::kNvmeRead), node * bytes(Lane::kNvmeWrite),
               DrivePair(profile, request.nvme_paths));
  std::tie(time(Lane::kH2d), time(Lane::kD2h)) =
      OverBoth(processor * bytes(Lane::kH2d), processor * bytes(Lane::kD2h),
               LinkPair(profile, request.on_gpu));
  time(Lane::kCompute) = Over(processor * arithmetic.flops,
                              ComputeRate(profile, planned.spec.precision, request.on_gpu));
  time(Lane::kCpu) = Over(node * arithmetic.cpu_parameters, profile.figure(MachineFigure::kAdamW));
  time(Lane::kComm) = Over(ArrivingBytes(planned, mask), profile.figure(MachineFigure::kAllGather));
  Conclude(request.on_gpu, &estimate);
  return estimate;
}

std::string EstimateText(const StepEstimate& estimate, const std::string& origin) {
  std::string text;
  if (estimate.bound_by.has_value()) {
    text = fmt::format("  a step takes at least {:.3g} s on the machine of {}: {} bounds it\n",
                       estimate.step_seconds, origin, LaneName(*estimate.bound_by));
    if (estimate.cpu_seconds == estimate.step_seconds) {
      text += "  compute, cpu, h2d and d2h share the processor: their times add up\n";
    }
  } else {
    text = fmt::format("  {} tells no lane's time\n", origin);
  }
  for (int lane = 0; lane < kLaneCount; ++lane) {
    if (estimate.lanes[lane].seconds.has_value()) continue;
    text += fmt::format("  not in it: {}: {}\n", LaneName(static_cast<Lane>(lane)),
                        estimate.lanes[lane].reason);
  }
  return text;
}

std::string EstimateJson(const StepEstimate& estimate, const std::string& origin) {
  nlohmann::ordered_json json = {{"machine", origin},
                                 {"step_seconds_min", nullptr},
                                 {"bound_by", nullptr},
                                 {"lane_seconds", nlohmann::ordered_json::object()},
                                 {"not_told", nlohmann::ordered_json::object()}};
  if (estimate.bound_by.has_value()) {
    json["step_seconds_min"] = estimate.step_seconds;
    json["bound_by"] = LaneName(*estimate.bound_by);
  }
  for (int lane = 0; lane < kLaneCount; ++lane) {
    const char* const name = LaneName(static_cast<Lane>(lane));
    json["lane_seconds"][name] = nullptr;
    if (estimate.lanes[lane].seconds.has_value()) {
      json["lane_seconds"][name] = *estimate.lanes[lane].seconds;
    } else {
      json["not_told"][name] = estimate.lanes[lane].reason;
    }
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace marea
