#include "engine/train/budgets.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "io/memory_limits.h"
#include "io/nvme_directory.h"
#include "io/units.h"

namespace marea {
namespace {

constexpr double kRamShare = 0.8;
constexpr double kVramShareOfRam = 0.5;  // on the CPU, where VRAM is a part of RAM
constexpr double kNvmeShare = 0.9;

uint64_t ShareOf(double share, uint64_t bytes) {
  return static_cast<uint64_t>(share * static_cast<double>(bytes));
}

uint64_t Apply(const SizeLimit& limit, uint64_t whole, uint64_t otherwise) {
  if (limit.bytes) return *limit.bytes;
  if (limit.fraction) return ShareOf(*limit.fraction, whole);
  return otherwise;
}

// --nvme as given; without it, what the config's offload sections name.
std::vector<NvmePath> NvmePaths(const RunOptions& options, const TrainingConfig& config) {
  if (!options.nvme.empty()) return options.nvme;
  std::vector<NvmePath> paths;
  for (const OffloadConfig* section :
       {&config.zero.offload_param, &config.zero.offload_optimizer}) {
    if (section->device != OffloadDevice::kNvme || !section->nvme_path) continue;
    const bool known = std::any_of(paths.begin(), paths.end(), [&](const NvmePath& path) {
      return path.path == *section->nvme_path;
    });
    if (!known) paths.push_back({*section->nvme_path, {}});
  }
  return paths;
}

Status AddNvme(const NvmePath& path, ResolvedBudgets& resolved) {
  MAREA_ASSIGN_OR_RETURN(const DirectoryReport report, CheckNvmeDirectory(path.path));
  if (!report.direct_io) {
    return Status::InvalidArgument(fmt::format(
        "--nvme {}: its file system ({}) refuses direct I/O; name a folder on ext4 or xfs",
        path.path, report.file_system));
  }
  for (const std::string& warning : report.warnings) resolved.warnings.push_back(warning);
  for (const StorePath& other : resolved.store_paths) {
    std::error_code ignored;
    if (std::filesystem::equivalent(other.path, path.path, ignored)) {
      return Status::InvalidArgument(
          fmt::format("--nvme {} and --nvme {} are the same folder", other.path, path.path));
    }
  }
  const uint64_t bytes =
      Apply(path.limit, report.free_bytes, ShareOf(kNvmeShare, report.free_bytes));
  if (bytes > report.free_bytes) {
    return Status::DoesNotFit(
        fmt::format("--nvme {}: {} were asked for, but only {} are free there", path.path,
                    FormatBytes(bytes), FormatBytes(report.free_bytes)));
  }
  resolved.store_paths.push_back({path.path, bytes, 1.0});
  resolved.budgets.nvme_bytes += bytes;
  return Status::Ok();
}

}  // namespace

Result<ResolvedBudgets> ResolveBudgets(const RunOptions& options, const TrainingConfig& config) {
  ResolvedBudgets resolved;
  MAREA_ASSIGN_OR_RETURN(const MemoryLimits memory, ReadMemoryLimits());
  const uint64_t machine = std::min(memory.total_bytes, memory.cgroup_bytes);
  Budgets& budgets = resolved.budgets;
  budgets.ram_bytes =
      Apply(options.ram.value_or(SizeLimit{}), machine, ShareOf(kRamShare, machine));
  if (memory.cgroup_bytes < budgets.ram_bytes) {
    resolved.warnings.push_back(fmt::format("--ram {} is capped at the cgroup's limit of {} ({})",
                                            FormatBytes(budgets.ram_bytes),
                                            FormatBytes(memory.cgroup_bytes), memory.cgroup_path));
    budgets.ram_bytes = memory.cgroup_bytes;
  }
  if (budgets.ram_bytes > memory.available_bytes) {
    resolved.warnings.push_back(
        fmt::format("--ram {} is more than the {} that the system calls available now",
                    FormatBytes(budgets.ram_bytes), FormatBytes(memory.available_bytes)));
  }
  budgets.vram_bytes = Apply(options.vram.value_or(SizeLimit{}), budgets.ram_bytes,
                             ShareOf(kVramShareOfRam, budgets.ram_bytes));
  for (const NvmePath& path : NvmePaths(options, config)) {
    MAREA_RETURN_IF_ERROR(AddNvme(path, resolved));
  }
  return resolved;
}

}  // namespace marea
