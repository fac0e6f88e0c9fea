#include "swap/nvme_tier.h"

#include <fmt/format.h>

#include <array>
#include <future>
#include <utility>

#include "io/block_device_factory.h"
#include "io/check.h"

namespace marea {

StoreGeometry GeometryFor(const StoreLayout& layout, uint32_t path_index, const ChunkTable& table) {
  const PathLayout& path = layout.paths[path_index];
  return {.slots = layout.slots,
          .path_index = path_index,
          .path_count = static_cast<uint32_t>(layout.paths.size()),
          .chunk_count = path.homes.size(),
          .file_bytes = path.file_bytes,
          .layout_hash = LayoutHash(path, table)};
}

NvmeTier::NvmeTier(const ChunkTable& table, const NvmeTierOptions& options, StoreLayout layout,
                   const RunUuid& run_uuid)
    : table_(table), options_(options), layout_(std::move(layout)), run_uuid_(run_uuid) {
  paths_.resize(layout_.paths.size());
}

Result<std::unique_ptr<NvmeTier>> NvmeTier::Create(const ChunkTable& table,
                                                   std::span<const StorePath> paths,
                                                   std::span<const std::span<std::byte>> buffers,
                                                   const NvmeTierOptions& options) {
  MAREA_ASSIGN_OR_RETURN(StoreLayout layout, LayOutStore(table, paths, options.slots));
  MAREA_ASSIGN_OR_RETURN(const RunUuid run_uuid, MakeRunUuid());
  std::unique_ptr<NvmeTier> tier(new NvmeTier(table, options, std::move(layout), run_uuid));
  for (uint32_t index = 0; index < tier->paths_.size(); ++index) {
    if (tier->layout_.paths[index].homes.empty()) continue;
    Status opened = tier->OpenPath(index, buffers);
    if (opened.ok()) continue;
    // Half a tier is none: what the paths before this one hold goes too.
    for (const std::unique_ptr<Path>& path : tier->paths_) {
      if (path != nullptr && options.at_end == StoreFiles::kKeep) (void)path->file.Unlink();
    }
    return opened;
  }
  return tier;
}

Status NvmeTier::OpenPath(uint32_t index, std::span<const std::span<std::byte>> buffers) {
  const PathLayout& layout = layout_.paths[index];
  MAREA_ASSIGN_OR_RETURN(DataFile file, DataFile::Create(layout.path + "/" + options_.file_name,
                                                         layout.file_bytes, options_.file));
  paths_[index] = std::make_unique<Path>(Path{std::move(file), nullptr, nullptr, nullptr, nullptr});
  Path& path = *paths_[index];
  const std::array files = {DeviceFile{path.file.fd(), path.file.path()}};
  MAREA_ASSIGN_OR_RETURN(path.device, MakeBlockDevice(files, buffers, options_.device));
  if (options_.clock) path.meter = std::make_unique<PathMeter>(options_.clock);
  path.store = std::make_unique<TierStore>(
      table_, layout, layout_.slots, *path.device, 0,
      TierStoreOptions{.flush = [&path] { return path.file.Sync(); }, .meter = path.meter.get()});
  path.thread = std::make_unique<IoThread>(fmt::format("marea-nvme-{}", index), *path.store,
                                           *path.device, options_.inbox_max);
  return WriteSuperblock(index, *path.thread);
}

Status NvmeTier::WriteSuperblock(uint32_t index, IoThread& thread) {
  // Shared: the waiter may be gone while the I/O thread is still inside set_value.
  const auto written = std::make_shared<std::promise<Status>>();
  thread.StartSuperblock(MakeSuperblock(run_uuid_, GeometryFor(layout_, index, table_)), 0,
                         [written](Status status) { written->set_value(std::move(status)); });
  return written->get_future().get();
}

NvmeTier::~NvmeTier() {
  (void)Shutdown();
}

void NvmeTier::Start(const ChunkTransfer& transfer, ChunkDone done) {
  MAREA_CHECK(transfer.chunk < layout_.path_of_chunk.size(),
              "a transfer names a chunk of the table");
  paths_[layout_.path_of_chunk[transfer.chunk]]->thread->Start(transfer, std::move(done));
}

Status NvmeTier::Shutdown() {
  if (std::exchange(down_, true)) return Status::Ok();
  Status first = Status::Ok();
  for (const std::unique_ptr<Path>& path : paths_) {
    if (path == nullptr) continue;
    if (path->thread != nullptr) path->thread->Shutdown();
    Status ended = options_.at_end == StoreFiles::kRemove ? path->file.Unlink() : path->file.Sync();
    if (first.ok() && !ended.ok()) first = std::move(ended);
  }
  return first;
}

const IoModeReport* NvmeTier::mode() const {
  for (const std::unique_ptr<Path>& path : paths_) {
    if (path != nullptr) return &path->device->mode();
  }
  return nullptr;
}

std::vector<PathFlows> NvmeTier::flows() const {
  std::vector<PathFlows> flows(paths_.size());
  for (size_t i = 0; i < paths_.size(); ++i) {
    if (paths_[i] != nullptr && paths_[i]->meter != nullptr)
      flows[i] = paths_[i]->meter->Snapshot();
  }
  return flows;
}

}  // namespace marea
