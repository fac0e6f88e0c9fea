#include "io/uring_setup.h"

#include <fmt/format.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>

#include "io/memory_limits.h"
#include "io/mutex.h"
#include "io/transfer_set.h"
#include "io/units.h"
#include "io/uring_device.h"

// Flags of newer kernels that older headers lack.
#ifndef IORING_SETUP_SUBMIT_ALL
#define IORING_SETUP_SUBMIT_ALL (1U << 7)
#endif
#ifndef IORING_SETUP_COOP_TASKRUN
#define IORING_SETUP_COOP_TASKRUN (1U << 8)
#define IORING_SETUP_TASKRUN_FLAG (1U << 9)
#endif
#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif

namespace marea {
namespace {

// From best to plainest; a kernel that does not know a flag answers EINVAL. R_DISABLED is needed
// only where the kernel remembers a single issuer.
constexpr unsigned kCoop =
    IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL;
constexpr unsigned kSingle = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_R_DISABLED;
constexpr std::array<unsigned, 5> kFlagChoices = {
    kSingle | IORING_SETUP_DEFER_TASKRUN | kCoop,  // 6.1
    kSingle | kCoop,                               // 6.0
    kCoop,                                         // 5.19
    IORING_SETUP_SUBMIT_ALL,                       // 5.18
    0,
};

// Explains a refusal of io_uring_setup and says what would lift it.
UringProbe ExplainRefusal(int error_number) {
  UringProbe probe{.error_number = error_number, .cause = {}, .remedy = {}};
  if (error_number == ENOSYS) {
    probe.cause = "the kernel has no io_uring, or a sandbox hides it (ENOSYS)";
    probe.remedy = "use Linux 5.10 or newer, or allow io_uring_setup in the sandbox";
    return probe;
  }
  if (error_number == EPERM || error_number == EACCES) {
    int disabled = 0;
    std::ifstream("/proc/sys/kernel/io_uring_disabled") >> disabled;
    if (disabled != 0) {
      probe.cause =
          fmt::format("the kernel forbids io_uring (kernel.io_uring_disabled is {})", disabled);
      probe.remedy = "sysctl kernel.io_uring_disabled=0";
    } else {
      probe.cause =
          "io_uring is forbidden for this process (EPERM), as seccomp filters of "
          "containers do";
      probe.remedy =
          "docker run --security-opt seccomp=PROFILE with a profile that allows io_uring";
    }
    return probe;
  }
  if (error_number == ENOMEM) {
    probe.cause = "there is no locked memory left for a ring (ENOMEM)";
    probe.remedy = kMemlockRemedy;
    return probe;
  }
  probe.cause = Status::Io("io_uring_setup failed", error_number).message();
  probe.remedy = "none known";
  return probe;
}

// Held while a ring is made or given back. A ring's memory may have been another's, of another
// thread; liburing maps it without libc, so that a thread sanitizer knows of the change of hands by
// this lock alone.
Mutex g_ring_memory;

void ExitRing(io_uring* ring) {
  MutexLock lock(g_ring_memory);
  io_uring_queue_exit(ring);
}

int InitRing(unsigned entries, io_uring* ring, unsigned* flags) {
  MutexLock lock(g_ring_memory);
  int result = -EINVAL;
  for (const unsigned choice : kFlagChoices) {
    io_uring_params params{};
    params.flags = choice;
    result = io_uring_queue_init_params(entries, ring, &params);
    if (result == 0) *flags = choice;
    if (result != -EINVAL) break;
  }
  return result;
}

}  // namespace

UringProbe ProbeUring() {
  io_uring ring{};
  int opened = 0;
  {
    MutexLock lock(g_ring_memory);
    opened = io_uring_queue_init(2, &ring, 0);
  }
  if (opened < 0) return ExplainRefusal(-opened);
  UringProbe probe;
  io_uring_probe* const operations = io_uring_get_probe_ring(&ring);
  if (operations == nullptr || !io_uring_opcode_supported(operations, IORING_OP_READ) ||
      !io_uring_opcode_supported(operations, IORING_OP_WRITE_FIXED)) {
    probe = {.error_number = ENOSYS,
             .cause = "this kernel's io_uring lacks plain reads",
             .remedy = "use Linux 5.10 or newer"};
  } else {
    // A filter may allow the set-up and forbid the rest.
    io_uring_prep_nop(io_uring_get_sqe(&ring));
    const int entered = io_uring_submit_and_wait(&ring, 1);
    if (entered < 0) probe = ExplainRefusal(-entered);
  }
  if (operations != nullptr) io_uring_free_probe(operations);
  ExitRing(&ring);
  return probe;
}

void Ring::Exit::operator()(io_uring* ring) const {
  ExitRing(ring);
  delete ring;
}

Status Ring::Open(unsigned entries) {
  MAREA_CHECK(ring_ == nullptr, "a ring is opened once");
  auto ring = std::make_unique<io_uring>();
  const int result = InitRing(entries, ring.get(), &flags_);
  if (result < 0) {
    return Status::Errno(ErrorCode::kUnavailable, ExplainRefusal(-result).cause, -result);
  }
  ring_.reset(ring.release());
  return Status::Ok();
}

Status RegisteredBuffers::Register(const Ring& ring,
                                   std::span<const std::span<std::byte>> buffers) {
  std::vector<iovec> vectors;
  uint64_t bytes = 0;
  for (const std::span<std::byte> buffer : buffers) {
    const auto begin = reinterpret_cast<uintptr_t>(buffer.data());
    const uintptr_t end = begin + buffer.size();
    for (uintptr_t at = begin; at < end;) {
      const uintptr_t next =
          std::min<uintptr_t>(end, at / kAddressCutBytes * kAddressCutBytes + kAddressCutBytes);
      parts_.push_back({at, next, static_cast<int>(vectors.size())});
      vectors.push_back({reinterpret_cast<void*>(at), next - at});
      at = next;
    }
    bytes += buffer.size();
  }
  if (vectors.empty()) return Status::Unavailable("there is no memory to register");
  std::sort(parts_.begin(), parts_.end(),
            [](const Part& a, const Part& b) { return a.begin < b.begin; });
  const int result =
      io_uring_register_buffers(ring.get(), vectors.data(), static_cast<unsigned>(vectors.size()));
  if (result == 0) return Status::Ok();
  parts_.clear();
  std::string text = fmt::format("{} of buffers cannot be registered", FormatBytes(bytes));
  if (result == -ENOMEM) {
    const Result<MemoryLimits> limits = ReadMemoryLimits();
    if (limits.ok() && limits.value().memlock_bytes != kNoLimit) {
      text += fmt::format(" within the locked-memory limit of {}",
                          FormatBytes(limits.value().memlock_bytes));
    }
  }
  return Status::Errno(ErrorCode::kUnavailable, text, -result);
}

int RegisteredBuffers::Find(const std::byte* data, uint64_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  auto part = std::upper_bound(
      parts_.begin(), parts_.end(), begin,
      [](uintptr_t address, const Part& candidate) { return address < candidate.begin; });
  if (part == parts_.begin()) return -1;
  --part;
  return begin + bytes <= part->end ? part->index : -1;
}

}  // namespace marea
