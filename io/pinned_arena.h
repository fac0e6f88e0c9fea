// One large block of host memory, mapped once at start: pages of 2 MiB where the kernel has them,
// touched in parallel on the right NUMA node, and registered with whoever needs fixed pages (CUDA;
// io_uring registers it as a device's buffer).
//
// Method: mmap + MADV_HUGEPAGE + parallel population + registration. It is faster than
// cudaHostAlloc and takes at most 2 MiB more than asked for (the rest of the last huge page), where
// pinned allocators of frameworks round up to powers of two.
//
// Move-only, owned by one object; its bytes may be used from any thread. Shutdown is explicit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/status.h"

namespace marea {

// Pins memory for a device, without io knowing which. Implemented above io (CUDA:
// cudaHostRegister). REQUIRES: outlives every arena that uses it. Called by the thread that makes
// or shuts down the arena.
class MemoryRegistrar {
 public:
  virtual ~MemoryRegistrar() = default;
  virtual Status Register(std::span<std::byte> memory) = 0;
  virtual Status Unregister(std::span<std::byte> memory) = 0;
};

inline constexpr int kAnyNumaNode = -1;

struct ArenaOptions {
  uint64_t bytes = 0;                    // rounded up to whole pages
  int numa_node = kAnyNumaNode;          // operating system's index (topology.h)
  uint32_t touch_threads = 0;            // 0: one for each core of the node, at most 16
  MemoryRegistrar* registrar = nullptr;  // none: the memory is not pinned for a device
};

class PinnedArena {
 public:
  // Blocks until every page exists: some tenths of a second for each GiB, ten times that where a
  // virtual machine's memory is touched for the first time. DoesNotFit, with the numbers, if
  // the machine or the cgroup cannot hold it; Unavailable if the kernel refuses the mapping; the
  // registrar's own Status if it refuses. Nothing is left behind on failure.
  static Result<PinnedArena> Create(const ArenaOptions& options);

  PinnedArena(PinnedArena&& other) noexcept;
  PinnedArena& operator=(PinnedArena&& other) noexcept;
  // A programmer error if the arena is registered and Shutdown was not called: no device call may
  // run from a destructor. Unregistered memory is simply unmapped.
  ~PinnedArena();

  std::span<std::byte> bytes() const { return memory_; }
  // What could not be had and is only slower: huge pages, NUMA binding. Whole sentences.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Unregisters and unmaps. Harmless to repeat. REQUIRES: nobody uses the bytes any more.
  Status Shutdown();

 private:
  PinnedArena() = default;

  std::span<std::byte> mapped_;           // empty after Shutdown or a move
  std::span<std::byte> memory_;           // what was asked for, the first part of it
  MemoryRegistrar* registrar_ = nullptr;  // set exactly while the memory is registered
  std::vector<std::string> warnings_;
};

}  // namespace marea
