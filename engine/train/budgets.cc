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
constexpr double kCpuVramShare = 0.5;  // of RAM, of which it is a part
constexpr double kGpuVramShare = 0.9;  // of what is free
constexpr double kNvmeShare = 0.9;

uint64_t ShareOf(double share, uint64_t bytes) {
  return static_cast<uint64_t>(share * static_cast<double>(bytes));
}

uint64_t Apply(const SizeLimit& limit, uint64_t whole, uint64_t otherwise) {
  if (limit.bytes) return *limit.bytes;
  if (limit.fraction) return ShareOf(*limit.fraction, whole);
  return otherwise;
}

// A path and where it was named, so that an error can say so.
struct NamedPath {
  NvmePath path;
  std::string source;  // "--nvme", or the key of the config
};

// --nvme as given; without it, what the config's offload sections name.
std::vector<NamedPath> NvmePaths(const RunOptions& options, const TrainingConfig& config) {
  std::vector<NamedPath> paths;
  for (const NvmePath& path : options.nvme) paths.push_back({path, "--nvme"});
  if (!paths.empty()) return paths;
  const auto add = [&](const OffloadConfig& section, const char* source) {
    if (section.device != OffloadDevice::kNvme || !section.nvme_path) return;
    const bool known = std::any_of(paths.begin(), paths.end(), [&](const NamedPath& other) {
      std::error_code ignored;
      return other.path.path == *section.nvme_path ||
             std::filesystem::equivalent(other.path.path, *section.nvme_path, ignored);
    });
    if (known) return;
    NvmePath path;
    path.path = *section.nvme_path;
    paths.push_back({path, source});
  };
  add(config.zero.offload_param, "zero_optimization.offload_param.nvme_path");
  add(config.zero.offload_optimizer, "zero_optimization.offload_optimizer.nvme_path");
  return paths;
}

Status AddNvme(const NamedPath& named, ResolvedBudgets& resolved) {
  const NvmePath& path = named.path;
  const Result<DirectoryReport> checked = CheckNvmeDirectory(path.path);
  if (!checked.ok()) return checked.status().WithContext(named.source);
  const DirectoryReport& report = checked.value();
  if (!report.direct_io) {
    return Status::InvalidArgument(
        fmt::format("{} {}: its file system ({}) refuses direct I/O; name a folder on ext4 or xfs",
                    named.source, path.path, report.file_system));
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
    return Status::DoesNotFit(fmt::format("{} {}: {} were asked for, but only {} are free there",
                                          named.source, path.path, FormatBytes(bytes),
                                          FormatBytes(report.free_bytes)));
  }
  resolved.store_paths.push_back({path.path, bytes, 1.0});
  resolved.budgets.nvme_bytes += bytes;
  return Status::Ok();
}

Status ResolveVram(const RunOptions& options, const std::optional<GpuFacts>& gpu,
                   Budgets& budgets) {
  const SizeLimit limit = options.vram.value_or(SizeLimit{});
  if (!gpu) {
    budgets.vram_bytes = Apply(limit, budgets.ram_bytes, ShareOf(kCpuVramShare, budgets.ram_bytes));
    return Status::Ok();
  }
  budgets.vram_bytes = Apply(limit, gpu->total_bytes, ShareOf(kGpuVramShare, gpu->free_bytes));
  if (budgets.vram_bytes <= gpu->free_bytes) return Status::Ok();
  return Status::DoesNotFit(fmt::format(
      "--vram {} is more than the {} that are free of the {} of GPU {} ({}); pass --vram {}MiB, or "
      "end what holds the rest (nvidia-smi shows it)",
      FormatBytes(budgets.vram_bytes), FormatBytes(gpu->free_bytes), FormatBytes(gpu->total_bytes),
      gpu->index, gpu->name, ShareOf(kGpuVramShare, gpu->free_bytes) / kMiB));
}

}  // namespace

Result<ResolvedBudgets> ResolveBudgets(const RunOptions& options, const TrainingConfig& config,
                                       const std::optional<GpuFacts>& gpu) {
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
  MAREA_RETURN_IF_ERROR(ResolveVram(options, gpu, budgets));
  for (const NamedPath& path : NvmePaths(options, config)) {
    MAREA_RETURN_IF_ERROR(AddNvme(path, resolved));
  }
  return resolved;
}

}  // namespace marea
