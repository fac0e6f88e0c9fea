#include "src/machine_facts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <span>

#include "engine/model/model_shape.h"
#include "engine/model/torch_cuda.h"
#include "engine/model/torch_runtime.h"
#include "engine/optim/simd_level.h"
#include "engine/report/lane_json.h"
#include "engine/report/version.h"
#include "io/block_device_factory.h"
#include "io/data_file.h"
#include "io/drive_info.h"
#include "io/memory_limits.h"
#include "io/nvme_directory.h"
#include "io/pinned_arena.h"
#include "io/topology.h"
#include "io/units.h"
#include "swap/gpu_probe.h"

namespace marea {
namespace {

using nlohmann::ordered_json;

class Collector {
 public:
  explicit Collector(MachineFacts& facts) : facts_(facts) {}

  void set_section(const char* section) { section_ = section; }
  void Text(const char* key, const std::string& text) { Add(key, text, text); }
  void Number(const char* key, uint64_t number) { Add(key, number, fmt::format("{}", number)); }
  void Bytes(const char* key, uint64_t bytes) { Add(key, bytes, FormatBytes(bytes)); }
  void Limit(const char* key, uint64_t bytes) {
    if (bytes == kNoLimit) return Add(key, nullptr, "no limit");
    Bytes(key, bytes);
  }
  void Add(const char* key, ordered_json value, std::string text) {
    facts_.facts.push_back({section_, key, std::move(value), std::move(text)});
  }
  void Problem(const std::string& sentence) { facts_.problems.push_back(sentence); }

 private:
  MachineFacts& facts_;
  std::string section_;
};

void AddVersions(Collector& add) {
  add.set_section("versions");
  add.Text("marea", Version());
  add.Text("torch", TorchVersion());
  add.Text("liburing", MAREA_LIBURING_VERSION);
  add.Text("kernel", KernelVersion());
  add.Text("compiler", MAREA_COMPILER);
  add.Text("build", MAREA_BUILD_TYPE);
}

void AddCpu(Collector& add) {
  add.set_section("cpu");
  const Result<Topology> topology = ReadTopology();
  if (!topology.ok()) return add.Problem(topology.status().message());
  const Topology& machine = topology.value();
  add.Text("model", machine.cpu_model);
  add.Number("cores", machine.core_count);
  add.Number("hardware_threads", machine.thread_count);
  add.Number("processors_granted", machine.cpu_quota);
  add.Text("simd", SimdLevelName(DetectSimdLevel()));
  if (DetectSimdLevel() == SimdLevel::kScalar) {
    add.Problem("the optimizer runs without vector instructions: this processor or build has none");
  }
  add.Add("bf16_products", CpuMultipliesBf16(), CpuMultipliesBf16() ? "yes" : "no");
  if (!CpuMultipliesBf16()) {
    add.Problem(
        "bf16 on the CPU is computed in fp32, with copies of a block's weights, because without "
        "AVX-512 torch has no fast product of bf16 matrices");
  }
  ordered_json nodes = ordered_json::array();
  std::string text;
  for (const NumaNode& node : machine.nodes) {
    nodes.push_back(
        {{"index", node.index}, {"cores", node.core_count}, {"memory_bytes", node.memory_bytes}});
    text += fmt::format("{}{}: {} cores, {}", text.empty() ? "" : "; ", node.index, node.core_count,
                        FormatBytes(node.memory_bytes));
  }
  add.Add("numa_nodes", nodes, text);
}

void AddMemory(Collector& add) {
  add.set_section("memory");
  const Result<MemoryLimits> limits = ReadMemoryLimits();
  if (!limits.ok()) return add.Problem(limits.status().message());
  add.Bytes("total_bytes", limits.value().total_bytes);
  add.Bytes("available_bytes", limits.value().available_bytes);
  add.Limit("cgroup_bytes", limits.value().cgroup_bytes);
  if (!limits.value().cgroup_path.empty()) add.Text("cgroup_file", limits.value().cgroup_path);
  add.Limit("memlock_bytes", limits.value().memlock_bytes);
}

std::string CudaVersion(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// The GPU that a run would take. Loads torch's CUDA side, as a run would.
void AddGpu(Collector& add) {
  add.set_section("gpu");
  add.Add("driver", HasNvidiaDriver(), HasNvidiaDriver() ? "present" : "none");
  add.Add("built_with_cuda", BuiltWithCuda(), BuiltWithCuda() ? "yes" : "no");
  const Result<GpuFacts> gpu = ProbeGpu(0);
  if (!gpu.ok()) return add.Problem("no GPU: " + gpu.status().message());
  const GpuFacts& facts = gpu.value();
  add.Text("name", facts.name);
  add.Text("pci", facts.pci);
  add.Text("compute_capability", fmt::format("{}.{}", facts.major, facts.minor));
  add.Bytes("memory_bytes", facts.total_bytes);
  add.Bytes("free_bytes", facts.free_bytes);
  add.Text("driver_cuda", CudaVersion(facts.driver_version));
  add.Text("build_cuda", CudaVersion(facts.runtime_version));
  const Status torch = LoadTorchCuda();
  if (!torch.ok()) add.Problem("no GPU: " + torch.message());
}

// Makes a small file and a device on it, as a run would, and removes the file.
Status TryDevice(Collector& add, const std::string& folder) {
  const std::string path = fmt::format("{}/.marea-report-{}", folder, getpid());
  MAREA_ASSIGN_OR_RETURN(DataFile file, DataFile::Create(path, 16 * kPageBytes));
  MAREA_RETURN_IF_ERROR(file.Unlink());
  ArenaOptions arena_options;
  arena_options.bytes = 2 * kMiB;
  MAREA_ASSIGN_OR_RETURN(PinnedArena arena, PinnedArena::Create(arena_options));
  const DeviceFile files[] = {{file.fd(), path}};
  const std::span<std::byte> buffers[] = {arena.bytes()};
  MAREA_ASSIGN_OR_RETURN(const std::unique_ptr<BlockDevice> device,
                         MakeBlockDevice(files, buffers, {}));
  const IoModeReport& mode = device->mode();
  add.Text("mode", IoModeName(mode.mode));
  if (mode.reason.empty()) return Status::Ok();
  add.Text("mode_reason", mode.reason);
  add.Text("mode_cost", mode.cost);
  add.Text("mode_remedy", mode.remedy);
  add.Problem(fmt::format("I/O goes by {}: {}; {}; to lift it: {}", IoModeName(mode.mode),
                          mode.reason, mode.cost, mode.remedy));
  return Status::Ok();
}

void AddIo(Collector& add, const std::string& folder) {
  add.set_section("io");
  add.Text("folder", folder);
  const Result<DriveInfo> drive = FindDrive(folder);
  if (drive.ok() && !drive.value().device.empty()) {
    const DriveInfo& info = drive.value();
    add.Text("drive", info.device);
    if (!info.model.empty()) add.Text("drive_model", info.model);
    add.Number("logical_block_bytes", info.logical_block_bytes);
  }
  const Result<DirectoryReport> report = CheckNvmeDirectory(folder);
  if (!report.ok()) return add.Problem("no NVMe tier here: " + report.status().message());
  add.Text("file_system", report.value().file_system);
  add.Bytes("free_bytes", report.value().free_bytes);
  const bool direct = report.value().direct_io;
  add.Add("direct_io", direct, direct ? "yes" : "no");
  add.Number("alignment_bytes", report.value().alignment_bytes);
  for (const std::string& warning : report.value().warnings) add.Problem(warning);
  const Status tried = TryDevice(add, folder);
  if (!tried.ok()) add.Problem("no NVMe tier here: " + tried.message());
}

}  // namespace

MachineFacts CollectFacts(const std::string& io_folder) {
  MachineFacts facts;
  Collector add(facts);
  AddVersions(add);
  AddCpu(add);
  AddMemory(add);
  AddGpu(add);
  AddIo(add, io_folder);
  return facts;
}

std::string FactsJson(const MachineFacts& facts) {
  ordered_json json;
  for (const Fact& fact : facts.facts) json[fact.section][fact.key] = fact.value;
  json["problems"] = facts.problems;
  return DumpJson(json, JsonStyle::kPretty) + "\n";
}

std::string FactsText(const MachineFacts& facts) {
  std::string text;
  std::string section;
  for (const Fact& fact : facts.facts) {
    if (fact.section != section) text += fact.section + "\n";
    section = fact.section;
    text += fmt::format("  {:<20} {}\n", fact.key, fact.text);
  }
  if (facts.problems.empty()) return text + "everything works\n";
  text += "what does not work, and why\n";
  for (const std::string& problem : facts.problems) text += "  " + problem + "\n";
  return text;
}

}  // namespace marea
