// marea inspect: what a path is. Reads only.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>

#include "engine/checkpoint/model_folder.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/config/json_text.h"
#include "engine/model/model_config.h"
#include "engine/plan/plan_json.h"
#include "engine/plan/plan_text.h"
#include "io/unique_fd.h"
#include "io/units.h"
#include "src/arguments.h"
#include "src/commands.h"
#include "src/messages.h"
#include "swap/superblock.h"

namespace marea {
namespace {

constexpr uint64_t kPlanBytesMax = uint64_t{1} << 30;
constexpr const char* kReadable =
    "`marea inspect` reads a run's file on NVMe (marea.arena), a model folder or checkpoint with a "
    "config.json, a .safetensors file, and a plan.json";

using SuperblockPages = std::array<std::byte, 2 * kPageBytes>;

// The first bytes of a file; the rest stays zero where it is shorter.
Result<SuperblockPages> ReadHead(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) {
    return Status::Errno(ErrorCode::kInvalidArgument, fmt::format("cannot open {}", path), errno);
  }
  SuperblockPages pages{};
  size_t done = 0;
  while (done < pages.size()) {
    const ssize_t got = read(fd.get(), pages.data() + done, pages.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::Io(fmt::format("cannot read {}", path), errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return pages;
}

std::span<const std::byte, kPageBytes> Page(const SuperblockPages& pages, size_t copy) {
  return std::span<const std::byte, kPageBytes>(pages.data() + copy * kPageBytes, kPageBytes);
}

bool IsArena(const SuperblockPages& pages) {
  for (size_t copy = 0; copy < 2; ++copy) {
    const SuperblockVerdict verdict = Judge(Page(pages, copy));
    if (verdict != SuperblockVerdict::kForeign && verdict != SuperblockVerdict::kEmpty) return true;
  }
  return false;
}

Result<std::string> DescribeArena(const std::string& path, const SuperblockPages& pages) {
  std::string text = fmt::format("{}: a run's file on NVMe\n", path);
  for (size_t copy = 0; copy < 2; ++copy) {
    text +=
        fmt::format("  superblock {}: {}\n", copy, SuperblockVerdictName(Judge(Page(pages, copy))));
  }
  MAREA_ASSIGN_OR_RETURN(const Superblock superblock,
                         ReadSuperblock(std::span<const std::byte, 2 * kPageBytes>(pages), path));
  const StoreGeometry geometry = GeometryOf(superblock);
  text += fmt::format("  run {}, format version {}, epoch {}{}\n", FormatUuid(superblock.run_uuid),
                      superblock.version, superblock.epoch,
                      superblock.epoch == 0 ? " (nothing committed yet)" : "");
  text +=
      fmt::format("  path {} of {}; {} chunks in {} slot{} each, pages of {}\n",
                  geometry.path_index + 1, geometry.path_count, geometry.chunk_count,
                  geometry.slots, geometry.slots == 1 ? "" : "s", FormatBytes(geometry.page_bytes));
  std::error_code error;
  const uint64_t file_bytes = std::filesystem::file_size(path, error);
  text += fmt::format("  {} by its superblock, {} on the drive{}\n",
                      FormatBytes(geometry.file_bytes), FormatBytes(error ? 0 : file_bytes),
                      file_bytes == geometry.file_bytes ? "" : ": CUT OR EXTENDED");
  return text;
}

std::string DescribeTensors(const SafetensorsFile& file) {
  uint64_t elements = 0;
  for (const TensorEntry& tensor : file.tensors()) elements += tensor.elements;
  std::string text = fmt::format("{}: safetensors, {} tensors, {:.1f}M elements, {}\n", file.path(),
                                 file.tensors().size(), static_cast<double>(elements) / 1e6,
                                 FormatBytes(file.file_bytes()));
  for (const auto& [key, value] : file.metadata()) {
    text += fmt::format("  {}: {}\n", OneLine(key), OneLine(value));
  }
  for (const TensorEntry& tensor : file.tensors()) {
    text += fmt::format("  {:<6} [{}] {}\n", tensor.type_name, fmt::join(tensor.dims, ", "),
                        OneLine(tensor.name));
  }
  return text;
}

Result<std::string> DescribeSafetensors(const std::string& path) {
  MAREA_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsFile> file, SafetensorsFile::Open(path));
  return DescribeTensors(*file);
}

// A folder, or a config.json alone.
Result<std::string> DescribeModel(const std::string& path) {
  MAREA_ASSIGN_OR_RETURN(const ModelFolder folder, OpenModelFolder(path));
  MAREA_ASSIGN_OR_RETURN(const ModelConfig config,
                         ParseModelConfig(folder.config_text, folder.config_path));
  const BatchShape batch{.sequences = 1, .sequence_length = 1};
  const ModelShape shape = MakeModelShape(config, batch, Precision::kBf16, 1);
  std::string text = fmt::format(
      "{}: {}, {:.1f}M parameters, {} layers, hidden {}, {} heads ({} of keys and values), "
      "vocabulary {}, up to {} positions, {} embeddings\n",
      folder.config_path, config.architecture == Architecture::kGpt2 ? "GPT-2" : "Llama",
      static_cast<double>(shape.parameters) / 1e6, config.layers, config.hidden, config.heads,
      config.kv_heads, config.vocabulary, config.max_positions,
      config.tied_embeddings ? "tied" : "untied");
  if (!folder.weights_path) return text + "  no weights: training starts from random values\n";
  MAREA_ASSIGN_OR_RETURN(const std::string tensors, DescribeSafetensors(*folder.weights_path));
  return text + tensors;
}

Result<std::string> DescribePlan(const std::string& path, const std::string& text) {
  MAREA_ASSIGN_OR_RETURN(const PlanFile file, ParsePlan(text, path));
  return fmt::format("{}: a plan of {} ops\n", path, file.plan.ops.size()) + PlanTable(file);
}

// A JSON file is a plan, a config.json of a model, or neither.
Result<std::string> DescribeJson(const std::string& path) {
  MAREA_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kPlanBytesMax));
  MAREA_ASSIGN_OR_RETURN(const nlohmann::json root, ParseJsonText(text, path));
  if (root.is_object() && root.contains("format")) return DescribePlan(path, text);
  if (root.is_object() && (root.contains("model_type") || root.contains("architectures"))) {
    return DescribeModel(path);
  }
  return Status::InvalidArgument(fmt::format("{}: JSON of another kind; {}", path, kReadable));
}

bool StartsAsJson(const SuperblockPages& head) {
  for (const std::byte byte : head) {
    const char character = static_cast<char>(byte);
    if (character == ' ' || character == '\n' || character == '\r' || character == '\t') continue;
    return character == '{';
  }
  return false;
}

Result<std::string> Describe(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return Status::Errno(ErrorCode::kInvalidArgument, path, errno);
  }
  if (S_ISDIR(info.st_mode)) {
    if (std::filesystem::exists(path + "/config.json")) return DescribeModel(path);
    return Status::InvalidArgument(
        fmt::format("{} is a folder without a config.json; {}", path, kReadable));
  }
  if (!S_ISREG(info.st_mode)) {
    return Status::InvalidArgument(
        fmt::format("{} is neither a file nor a folder; {}", path, kReadable));
  }
  MAREA_ASSIGN_OR_RETURN(const SuperblockPages head, ReadHead(path));
  if (IsArena(head)) return DescribeArena(path, head);
  if (StartsAsJson(head)) return DescribeJson(path);
  // The header's length comes first, then its JSON.
  const bool named_so = std::filesystem::path(path).extension() == ".safetensors";
  if (named_so || static_cast<char>(head[8]) == '{') return DescribeSafetensors(path);
  return Status::InvalidArgument(fmt::format("{} is of no known kind; {}", path, kReadable));
}

}  // namespace

int RunInspectCommand(const std::vector<std::string>& arguments) {
  std::string path;
  FlagSet set("marea inspect", "Describes an arena, a model folder, a safetensors file or a plan.");
  set.Positional("path", path, "PATH", "what to describe");
  if (const std::optional<int> ended = set.ParseOrEnd(arguments)) return *ended;
  if (path.empty()) {
    return FailWith(Status::InvalidArgument(fmt::format("which path? {}", kReadable)));
  }
  const Result<std::string> text = Describe(path);
  if (!text.ok()) return FailWithInput(text.status());
  fmt::print("{}", text.value());
  return 0;
}

}  // namespace marea
