#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "engine/comm/collective_sizes.h"
#include "engine/comm/communicator.h"
#include "engine/comm/network.h"
#include "engine/comm/ordered_reduce.h"
#include "engine/comm/run_bounded.h"
#include "io/mutex.h"

namespace marea {
namespace {

using std::chrono::milliseconds;
using Gloo = c10::intrusive_ptr<c10d::ProcessGroupGloo>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Longer spans travel as several messages.
constexpr size_t kMessageBytesMax = size_t{1} << 30;

enum Tag : int { kCollective = 0, kDirect = 1 };

// Goes ahead of the data of every call: Gloo ends the process at a message that is longer than what
// is expected, and takes a shorter one for complete.
struct Head {
  uint64_t what;
  uint64_t bytes;
  bool operator==(const Head&) const = default;
};
enum What : uint64_t { kGather = 1, kReduce, kSend };

std::string HeadText(const Head& head) {
  const char* what = head.what == kGather   ? "all-gather"
                     : head.what == kReduce ? "reduce-scatter"
                                            : "message";
  return fmt::format("a {} of {} bytes", what, head.bytes);
}

// The sentence of a torch or Gloo error: its first line, without the place in their sources.
std::string Sentence(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error ? torch_error->what_without_backtrace() : error.what();
  text = text.substr(0, text.find('\n'));
  const size_t bracket = text.find("] ");
  if (text.starts_with("[/") && bracket != std::string::npos) text = text.substr(bracket + 2);
  return text;
}

// A world of one: nothing moves.
class LoneCommunicator : public Communicator {
 public:
  Status AllGather(std::span<const std::byte> shard, std::span<std::byte> whole) override {
    if (shard.size() != whole.size()) {
      return Status::InvalidArgument("all-gather of one rank between spans of unequal size");
    }
    if (shard.data() != whole.data()) std::memcpy(whole.data(), shard.data(), shard.size());
    return Status::Ok();
  }
  Status ReduceScatter(std::span<float>) override { return Status::Ok(); }
  Status Send(std::span<const std::byte>, uint32_t to) override { return Nobody(to); }
  Status Receive(std::span<std::byte>, uint32_t from) override { return Nobody(from); }

 private:
  static Status Nobody(uint32_t rank) {
    return Status::InvalidArgument(fmt::format("there is no other rank {} to talk to", rank));
  }
};

class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(RankGroup& group, std::string name, Gloo gloo)
      : group_(group),
        name_(std::move(name)),
        rank_(group.world().rank),
        ranks_(group.world().size),
        piece_(ReducePieceElements(ranks_, kGlooScratchBytesMax)),
        scratch_(GlooScratchBytes(ranks_) / sizeof(float)),
        gloo_(std::move(gloo)) {
    aborter_ = group_.AddAborter([this](const Status& status) { Abort(status); });
  }
  ~GlooCommunicator() override { group_.RemoveListener(aborter_); }

  Status AllGather(std::span<const std::byte> shard, std::span<std::byte> whole) override {
    MAREA_RETURN_IF_ERROR(CheckGatherSizes(name_, ranks_, shard.size(), whole.size()));
    const auto place = whole.subspan(rank_ * shard.size(), shard.size());
    if (place.data() != shard.data()) std::memmove(place.data(), shard.data(), shard.size());
    MAREA_RETURN_IF_ERROR(CompareHeads("all-gather", Head{kGather, whole.size()}));
    Works works;
    for (size_t start = 0; start < shard.size(); start += kMessageBytesMax) {
      const size_t bytes = std::min(kMessageBytesMax, shard.size() - start);
      for (uint32_t turn = 1; turn < ranks_; ++turn) {
        const uint32_t from = (rank_ + ranks_ - turn) % ranks_;
        const uint32_t to = (rank_ + turn) % ranks_;
        const auto in = whole.subspan(from * shard.size() + start, bytes);
        MAREA_RETURN_IF_ERROR(StartReceive("all-gather", in, from, kCollective, works));
        MAREA_RETURN_IF_ERROR(
            StartSend("all-gather", place.subspan(start, bytes), to, kCollective, works));
      }
    }
    return Finish("all-gather", works);
  }

  Status ReduceScatter(std::span<float> whole) override {
    MAREA_RETURN_IF_ERROR(CheckScatterSize(name_, ranks_, whole.size()));
    MAREA_RETURN_IF_ERROR(CompareHeads("reduce-scatter", Head{kReduce, whole.size_bytes()}));
    // While one piece is added, the next one travels.
    const size_t part = whole.size() / ranks_;
    const size_t pieces = (part + piece_ - 1) / piece_;
    Works works[2];
    for (size_t piece = 0; piece <= pieces; ++piece) {
      if (piece < pieces) MAREA_RETURN_IF_ERROR(StartPiece(whole, piece, works[piece % 2]));
      if (piece == 0) continue;
      const size_t done = piece - 1;
      MAREA_RETURN_IF_ERROR(Finish("reduce-scatter", works[done % 2]));
      const size_t start = done * piece_;
      const auto own = whole.subspan(rank_ * part + start, std::min(piece_, part - start));
      SumInRankOrder(own, ScratchOf(done), rank_, ranks_);
    }
    return Status::Ok();
  }

  Status Send(std::span<const std::byte> bytes, uint32_t to) override {
    MAREA_RETURN_IF_ERROR(CheckPartner(to));
    const Head head{kSend, bytes.size()};
    Works works;
    MAREA_RETURN_IF_ERROR(
        StartSend("send", std::as_bytes(std::span(&head, 1)), to, kDirect, works));
    MAREA_RETURN_IF_ERROR(Finish("send", works));
    for (size_t start = 0; start < bytes.size(); start += kMessageBytesMax) {
      const size_t count = std::min(kMessageBytesMax, bytes.size() - start);
      MAREA_RETURN_IF_ERROR(StartSend("send", bytes.subspan(start, count), to, kDirect, works));
    }
    return Finish("send", works);
  }

  Status Receive(std::span<std::byte> bytes, uint32_t from) override {
    MAREA_RETURN_IF_ERROR(CheckPartner(from));
    Head head{};
    Works works;
    MAREA_RETURN_IF_ERROR(
        StartReceive("receive", std::as_writable_bytes(std::span(&head, 1)), from, kDirect, works));
    MAREA_RETURN_IF_ERROR(Finish("receive", works));
    MAREA_RETURN_IF_ERROR(CompareHead("receive", from, head, Head{kSend, bytes.size()}));
    for (size_t start = 0; start < bytes.size(); start += kMessageBytesMax) {
      const size_t count = std::min(kMessageBytesMax, bytes.size() - start);
      const auto in = bytes.subspan(start, count);
      MAREA_RETURN_IF_ERROR(StartReceive("receive", in, from, kDirect, works));
    }
    return Finish("receive", works);
  }

 private:
  using Works = std::vector<WorkPtr>;

  Status CheckPartner(uint32_t rank) const {
    if (rank < ranks_ && rank != rank_) return Status::Ok();
    return Status::InvalidArgument(
        fmt::format("rank {} of {} cannot talk to rank {}", rank_, ranks_, rank));
  }

  // Before a collective's data: whether all ranks do the same with the same size.
  Status CompareHeads(const char* what, const Head& own) {
    std::vector<Head> heads(ranks_);
    Works works;
    for (uint32_t turn = 1; turn < ranks_; ++turn) {
      const uint32_t from = (rank_ + ranks_ - turn) % ranks_;
      const uint32_t to = (rank_ + turn) % ranks_;
      const auto in = std::as_writable_bytes(std::span(&heads[from], 1));
      const auto out = std::as_bytes(std::span(&own, 1));
      MAREA_RETURN_IF_ERROR(StartReceive(what, in, from, kCollective, works));
      MAREA_RETURN_IF_ERROR(StartSend(what, out, to, kCollective, works));
    }
    MAREA_RETURN_IF_ERROR(Finish(what, works));
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      if (rank != rank_) MAREA_RETURN_IF_ERROR(CompareHead(what, rank, heads[rank], own));
    }
    return Status::Ok();
  }

  // After a difference nobody knows what comes next on the connections.
  Status CompareHead(const char* what, uint32_t from, const Head& theirs, const Head& own) {
    if (theirs == own) return Status::Ok();
    const Status status = Status::Failed(
        fmt::format("{} over Gloo ({}): {} sends {} where rank {} expects {}", what, name_,
                    group_.title(from), HeadText(theirs), rank_, HeadText(own)));
    Abort(status);
    return status;
  }

  float* ScratchOf(size_t piece) { return scratch_.data() + (piece % 2) * (ranks_ - 1) * piece_; }

  // Each part's piece goes to its rank; the others' pieces of this rank's part come, by rank.
  Status StartPiece(std::span<float> whole, size_t piece, Works& works) {
    const size_t part = whole.size() / ranks_;
    const size_t start = piece * piece_;
    const size_t count = std::min(piece_, part - start);
    for (uint32_t turn = 1; turn < ranks_; ++turn) {
      const uint32_t from = (rank_ + ranks_ - turn) % ranks_;
      const uint32_t to = (rank_ + turn) % ranks_;
      float* place = ScratchOf(piece) + (from < rank_ ? from : from - 1) * count;
      const auto in = std::as_writable_bytes(std::span<float>(place, count));
      const auto out = std::as_bytes(whole.subspan(to * part + start, count));
      MAREA_RETURN_IF_ERROR(StartReceive("reduce-scatter", in, from, kCollective, works));
      MAREA_RETURN_IF_ERROR(StartSend("reduce-scatter", out, to, kCollective, works));
    }
    return Status::Ok();
  }

  Status StartSend(const char* what, std::span<const std::byte> bytes, uint32_t to, Tag tag,
                   Works& works) {
    return Start(what, works, [&] {
      auto* data =
          const_cast<std::byte*>(bytes.data());  // a tensor knows no const; Gloo only reads
      std::vector<at::Tensor> tensors = {View(data, bytes.size())};
      return gloo_->send(tensors, static_cast<int>(to), tag);
    });
  }

  Status StartReceive(const char* what, std::span<std::byte> bytes, uint32_t from, Tag tag,
                      Works& works) {
    return Start(what, works, [&] {
      std::vector<at::Tensor> tensors = {View(bytes.data(), bytes.size())};
      return gloo_->recv(tensors, static_cast<int>(from), tag);
    });
  }

  static at::Tensor View(std::byte* data, size_t bytes) {
    return at::from_blob(data, {static_cast<int64_t>(bytes)}, at::kByte);
  }

  template <typename Call>
  Status Start(const char* what, Works& works, Call&& call) {
    std::string why;
    {
      MutexLock lock(mutex_);
      if (failed_) return *failed_;
      try {
        works.push_back(call());
        in_flight_.insert(works.back());
        return Status::Ok();
      } catch (const std::exception& error) {
        why = Sentence(error);
      }
    }
    return Broken(what, why);
  }

  Status Finish(const char* what, Works& works) {
    for (const WorkPtr& work : works) {
      try {
        const bool done = work->wait();
        MutexLock lock(mutex_);
        if (!done || failed_) {
          if (failed_) return *failed_;
          failed_ = Status::Failed(fmt::format("{} over Gloo ({}) was aborted", what, name_));
          return *failed_;
        }
        in_flight_.erase(work);
      } catch (const std::exception& error) {
        return Broken(what, Sentence(error));
      }
    }
    works.clear();
    return Status::Ok();
  }

  // Gloo's word for it is the consequence; the group may know the cause.
  Status Broken(const char* what, const std::string& why) {
    const Status cause =
        group_.CauseOf(Status::Failed(fmt::format("{} over Gloo ({}): {}", what, name_, why)));
    Abort(cause);
    MutexLock lock(mutex_);
    return *failed_;
  }

  void Abort(const Status& status) {
    MutexLock lock(mutex_);
    if (!failed_) failed_ = status;
    for (const WorkPtr& work : in_flight_) work->abort();
    in_flight_.clear();
  }

  RankGroup& group_;
  const std::string name_;
  const uint32_t rank_;
  const uint32_t ranks_;
  const size_t piece_;  // elements from one rank at a time
  std::vector<float> scratch_;
  const Gloo gloo_;
  uint64_t aborter_ = 0;

  Mutex mutex_;
  std::optional<Status> failed_ GUARDED_BY(mutex_);
  std::set<WorkPtr> in_flight_ GUARDED_BY(mutex_);
};

Result<Gloo> ConnectGloo(const World& world, const std::string& address, const std::string& prefix,
                         milliseconds timeout) {
  try {
    c10d::TCPStoreOptions store_options;
    store_options.port = world.master_port;
    store_options.waitWorkers = false;
    store_options.timeout = timeout;
    auto tcp = c10::make_intrusive<c10d::TCPStore>(world.master_address, store_options);
    auto store = c10::make_intrusive<c10d::PrefixStore>(prefix, std::move(tcp));
    auto options = c10d::ProcessGroupGloo::Options::create(timeout);
    options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname(address)};
    options->threads = 1;  // sends and receives need none
    return c10::make_intrusive<c10d::ProcessGroupGloo>(store, static_cast<int>(world.rank),
                                                       static_cast<int>(world.size), options);
  } catch (const std::exception& error) {
    return Status::Failed(fmt::format("rank {} cannot connect Gloo from {}: {}", world.rank,
                                      address, Sentence(error)));
  }
}

}  // namespace

uint64_t GlooScratchBytes(uint32_t ranks) {
  if (ranks < 2) return 0;
  return uint64_t{2} * (ranks - 1) * ReducePieceElements(ranks, kGlooScratchBytesMax) *
         sizeof(float);
}

Result<std::unique_ptr<Communicator>> MakeGlooCommunicator(RankGroup& group,
                                                           const std::string& name,
                                                           milliseconds timeout) {
  if (!group.TakeName(name)) {
    return Status::InvalidArgument(fmt::format("there is a communicator {} already", name));
  }
  if (group.world().size == 1) return std::unique_ptr<Communicator>(new LoneCommunicator());
  const std::string prefix = fmt::format("{}gloo/{}", group.store_prefix(), name);
  // Gloo cannot be told to stop waiting for a rank that has died.
  const auto connected = RunBounded<Result<Gloo>>(
      std::chrono::steady_clock::now() + timeout + milliseconds(5000),
      [world = group.world(), address = group.local_address(), prefix, timeout] {
        return ConnectGloo(world, address, prefix, timeout);
      },
      [&group] { return group.Failure().has_value(); });
  if (!connected) {
    return group.CauseOf(Status::Failed(fmt::format(
        "Gloo ({}) did not connect within {}: not all ranks made it", name, SecondsText(timeout))));
  }
  if (!connected->ok()) return group.CauseOf(connected->status());
  return std::unique_ptr<Communicator>(new GlooCommunicator(group, name, connected->value()));
}

}  // namespace marea
