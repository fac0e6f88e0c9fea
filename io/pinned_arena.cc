#include "io/pinned_arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "io/check.h"
#include "io/hwloc_topology.h"
#include "io/memory_limits.h"
#include "io/units.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace marea {
namespace {

constexpr uint64_t kHugePageBytes = 2 * kMiB;
constexpr uint32_t kTouchThreadsMax = 16;

Status CheckFits(uint64_t bytes) {
  MAREA_ASSIGN_OR_RETURN(const MemoryLimits limits, ReadMemoryLimits());
  if (bytes > limits.total_bytes) {
    return Status::DoesNotFit(
        fmt::format("an arena of {} ({} bytes) is larger than the machine's {}: lower the budget",
                    FormatBytes(bytes), bytes, FormatBytes(limits.total_bytes)));
  }
  if (bytes > limits.cgroup_bytes) {
    return Status::DoesNotFit(fmt::format(
        "an arena of {} ({} bytes) is larger than the limit of {} in {}: lower the budget or raise "
        "the limit",
        FormatBytes(bytes), bytes, FormatBytes(limits.cgroup_bytes), limits.cgroup_path));
  }
  return Status::Ok();
}

// Note [Whole huge pages]: io_uring sees a registered buffer as huge pages only if it has no other
// page. One last page of 4 KiB, and a request of 1 MiB has 256 segments, more than many drives take
// at once: the kernel cuts it into 1016 KiB and 8 KiB. So an arena is mapped to the end of its last
// huge page.
uint64_t WithWholeHugePages(uint64_t bytes) {
  return bytes < kHugePageBytes ? bytes : RoundUp(bytes, kHugePageBytes);
}

// Maps `bytes` starting at a huge page, by mapping more and giving back both ends.
Result<std::span<std::byte>> Map(uint64_t bytes) {
  const uint64_t mapped_bytes = bytes + kHugePageBytes;
  void* const raw =
      ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) {
    return Status::Errno(
        ErrorCode::kUnavailable,
        fmt::format("the kernel refuses to map {} ({} bytes) for an arena (see ulimit -v and "
                    "vm.overcommit_memory)",
                    FormatBytes(bytes), bytes),
        errno);
  }
  const auto start = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t begin = RoundUp(start, kHugePageBytes);
  if (begin > start) ::munmap(raw, begin - start);
  const uintptr_t end = begin + bytes;
  if (start + mapped_bytes > end) {
    ::munmap(reinterpret_cast<void*>(end), start + mapped_bytes - end);
  }
  return std::span<std::byte>(reinterpret_cast<std::byte*>(begin), bytes);
}

// Makes every page of `part` exist. Returns 0 or an errno.
int Touch(std::span<std::byte> part) {
  while (::madvise(part.data(), part.size(), MADV_POPULATE_WRITE) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno != EINVAL) return errno;
    std::memset(part.data(), 0, part.size());  // an older kernel
    break;
  }
  return 0;
}

// Hands out parts of the arena to threads on the node. Returns 0 or the first errno.
int TouchAll(std::span<std::byte> memory, uint32_t thread_count, const HwlocTopology& hwloc,
             hwloc_obj_t node) {
  constexpr uint64_t kPartBytes = 64 * kMiB;
  std::atomic<uint64_t> next{0};
  std::atomic<int> failure{0};
  const auto work = [&](bool own_thread) {
    if (own_thread && node != nullptr) {
      // Without it first touch is only less local.
      static_cast<void>(hwloc_set_cpubind(hwloc.get(), node->cpuset, HWLOC_CPUBIND_THREAD));
    }
    while (failure.load(std::memory_order_relaxed) == 0) {
      const uint64_t begin = next.fetch_add(kPartBytes, std::memory_order_relaxed);
      if (begin >= memory.size()) return;
      const int result = Touch(memory.subspan(begin, std::min(kPartBytes, memory.size() - begin)));
      if (result != 0) failure.store(result, std::memory_order_relaxed);
    }
  };
  std::vector<std::thread> threads;
  const uint64_t parts = DivideRoundUp(memory.size(), kPartBytes);
  for (uint64_t i = 0; i < std::min<uint64_t>(thread_count, parts); ++i) {
    try {
      threads.emplace_back(work, true);
    } catch (const std::system_error&) {  // std::thread's way to say so; the others do it
      break;
    }
  }
  if (threads.empty()) work(false);
  for (std::thread& thread : threads) thread.join();
  return failure.load();
}

void Unmap(std::span<std::byte> memory) {
  if (!memory.empty()) ::munmap(memory.data(), memory.size());
}

// Where pages are to be and how large; what the kernel refuses is only slower.
void Advise(std::span<std::byte> memory, int numa_node, const HwlocTopology& hwloc,
            hwloc_obj_t node, std::vector<std::string>* warnings) {
  if (::madvise(memory.data(), memory.size(), MADV_HUGEPAGE) != 0) {
    warnings->push_back(
        fmt::format("the arena has pages of 4 KiB, because the kernel refuses huge pages ({})",
                    std::strerror(errno)));
  }
  if (node != nullptr &&
      hwloc_set_area_membind(hwloc.get(), memory.data(), memory.size(), node->nodeset,
                             HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET) != 0) {
    warnings->push_back(
        fmt::format("the arena is not bound to NUMA node {}, because the kernel refuses ({})",
                    numa_node, std::strerror(errno)));
  }
}

}  // namespace

Result<PinnedArena> PinnedArena::Create(const ArenaOptions& options) {
  if (options.bytes == 0) return Status::InvalidArgument("an arena of 0 bytes makes no sense");
  if (options.bytes > UINT64_MAX / 2) return CheckFits(options.bytes);
  const uint64_t bytes = RoundUp(options.bytes, kPageBytes);
  MAREA_RETURN_IF_ERROR(CheckFits(bytes));
  MAREA_ASSIGN_OR_RETURN(const HwlocTopology hwloc, LoadHwloc());
  const hwloc_obj_t node = FindNode(hwloc, options.numa_node);
  if (node == nullptr && options.numa_node != kAnyNumaNode) {
    return Status::InvalidArgument(fmt::format("there is no NUMA node {}", options.numa_node));
  }
  uint32_t thread_count = options.touch_threads;
  if (thread_count == 0) {
    const hwloc_const_bitmap_t cpus =
        node != nullptr ? node->cpuset : hwloc_topology_get_allowed_cpuset(hwloc.get());
    thread_count = static_cast<uint32_t>(std::max(1, hwloc_bitmap_weight(cpus)));
  }

  PinnedArena arena;
  MAREA_ASSIGN_OR_RETURN(arena.mapped_, Map(WithWholeHugePages(bytes)));
  arena.memory_ = arena.mapped_.first(bytes);
  Advise(arena.mapped_, options.numa_node, hwloc, node, &arena.warnings_);
  const int failure =
      TouchAll(arena.mapped_, std::min(thread_count, kTouchThreadsMax), hwloc, node);
  if (failure != 0) {
    return Status::Errno(ErrorCode::kDoesNotFit,
                         fmt::format("the kernel has no pages for an arena of {} ({} bytes): lower "
                                     "the budget",
                                     FormatBytes(bytes), bytes),
                         failure);
  }
  if (options.registrar != nullptr) {
    const Status registered = options.registrar->Register(arena.memory_);
    if (!registered.ok()) {
      return registered.WithContext(
          fmt::format("pinning an arena of {} ({} bytes)", FormatBytes(bytes), bytes));
    }
    arena.registrar_ = options.registrar;
  }
  return arena;
}

PinnedArena::PinnedArena(PinnedArena&& other) noexcept
    : mapped_(std::exchange(other.mapped_, {})),
      memory_(std::exchange(other.memory_, {})),
      registrar_(std::exchange(other.registrar_, nullptr)),
      warnings_(std::move(other.warnings_)) {}

PinnedArena& PinnedArena::operator=(PinnedArena&& other) noexcept {
  if (this != &other) {
    MAREA_CHECK(registrar_ == nullptr, "a registered arena is replaced before Shutdown");
    Unmap(mapped_);
    mapped_ = std::exchange(other.mapped_, {});
    memory_ = std::exchange(other.memory_, {});
    registrar_ = std::exchange(other.registrar_, nullptr);
    warnings_ = std::move(other.warnings_);
  }
  return *this;
}

PinnedArena::~PinnedArena() {
  MAREA_CHECK(registrar_ == nullptr, "a registered arena is destroyed before Shutdown");
  Unmap(mapped_);
}

Status PinnedArena::Shutdown() {
  MemoryRegistrar* const registrar = std::exchange(registrar_, nullptr);
  const std::span<std::byte> memory = std::exchange(memory_, {});
  const Status status = registrar == nullptr ? Status::Ok() : registrar->Unregister(memory);
  Unmap(std::exchange(mapped_, {}));
  return status;
}

}  // namespace marea
