// The NVMe tier of a run: one store file, block device, tier store and I/O thread a path, and the
// routing of chunks to them.
//
// Owner: the trainer; it outlives the swapper. Thread rule: Start and status from any thread;
// Create and Shutdown from one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/block_device.h"
#include "io/data_file.h"
#include "io/device_options.h"
#include "io/status.h"
#include "swap/chunk_io.h"
#include "swap/chunk_table.h"
#include "swap/io_thread.h"
#include "swap/path_meter.h"
#include "swap/store_layout.h"
#include "swap/superblock.h"
#include "swap/tier_store.h"

namespace marea {

// What becomes of the files at the end.
enum class StoreFiles : uint8_t { kRemove, kKeep };

struct NvmeTierOptions {
  uint32_t slots = 1;
  std::string file_name = "marea.arena";  // in each path's folder
  StoreFiles at_end = StoreFiles::kRemove;
  // Transfers that may wait for one path's thread: at least what all lanes have in flight.
  uint32_t inbox_max = 256;
  std::function<double()> clock;  // in seconds, for flows(); empty: nothing is measured
  DataFileOptions file;
  BlockDeviceOptions device;
};

class NvmeTier final : public ChunkIo {
 public:
  // Lays the table out over `paths` (folders), makes the files, writes their superblocks (epoch 0)
  // and starts the threads. `buffers` is the memory that transfers will mostly use (arenas); it and
  // `table` outlive the tier. A path that gets no chunk has no file. Blocks for as long as the
  // drives take to write the files once. Fails with what LayOutStore, DataFile and MakeBlockDevice
  // say; then nothing is left behind.
  static Result<std::unique_ptr<NvmeTier>> Create(const ChunkTable& table,
                                                  std::span<const StorePath> paths,
                                                  std::span<const std::span<std::byte>> buffers,
                                                  const NvmeTierOptions& options);
  ~NvmeTier() override;  // shuts down; an error is lost

  void Start(const ChunkTransfer& transfer, ChunkDone done) override;

  // Finishes what was started, ends the threads, then removes or keeps the files. Blocks. Harmless
  // to repeat. An I/O failure is reported by the transfers; this returns what removal says.
  Status Shutdown();

  const StoreLayout& layout() const { return layout_; }
  const RunUuid& run_uuid() const { return run_uuid_; }
  // How bytes travel; null if no path has a chunk. Equal for all paths of a run on one kernel.
  const IoModeReport* mode() const;
  // What has moved over each path, in the order of the layout; a path without chunks moves nothing.
  // Any thread.
  std::vector<PathFlows> flows() const;

 private:
  // One path, in order of construction; destroyed in reverse.
  struct Path {
    DataFile file;
    std::unique_ptr<PathMeter> meter;  // null without a clock
    std::unique_ptr<BlockDevice> device;
    std::unique_ptr<TierStore> store;
    std::unique_ptr<IoThread> thread;
  };

  NvmeTier(const ChunkTable& table, const NvmeTierOptions& options, StoreLayout layout,
           const RunUuid& run_uuid);
  Status OpenPath(uint32_t index, std::span<const std::span<std::byte>> buffers);
  Status WriteSuperblock(uint32_t index, IoThread& thread);

  const ChunkTable& table_;
  const NvmeTierOptions options_;
  const StoreLayout layout_;
  const RunUuid run_uuid_;
  std::vector<std::unique_ptr<Path>> paths_;  // by path of the layout; null without chunks
  bool down_ = false;
};

// What a path's superblock must say.
StoreGeometry GeometryFor(const StoreLayout& layout, uint32_t path_index, const ChunkTable& table);

}  // namespace marea
