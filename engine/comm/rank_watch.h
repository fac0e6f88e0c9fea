// The ranks' line to each other: a star of TCP connections with rank 0 in the middle.
//
// Over it ranks exchange small texts, tell each other why they stop, and notice who is gone. Every
// rank sends a beat each `beat`; a connection that closes without a farewell means that the process
// died (seen at once); one that is silent for `stall_limit` means that the process was stopped or
// its machine is gone. Rank 0 sees these of the others and tells everybody; the others see them of
// rank 0. The first failure that is known is the one that counts.
//
// Nothing here is tensor data, and nothing of it slows training: one small message a second and
// rank.
//
// Thread rule: every call from any thread, but one rank's Exchange and Leave one at a time. One
// thread of this object does all the reading and writing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/comm/frame_socket.h"
#include "io/mutex.h"
#include "io/status.h"

namespace marea {

struct RankWatchOptions {
  uint32_t rank = 0;
  // "rank 1 (host gpu2, process 4711)", by rank.
  std::vector<std::string> titles;
  std::chrono::milliseconds beat{1000};
  std::chrono::milliseconds stall_limit{30'000};
};

class RankWatch {
 public:
  // `peers`: at rank 0 the connections to ranks 1.. in order, elsewhere the one to rank 0.
  RankWatch(RankWatchOptions options, std::vector<FrameSocket> peers);
  // Closes the connections: without Leave or Fail the others will say that this rank died.
  ~RankWatch();

  // The texts of all ranks by rank, once all have called it with the same `name`. Ends early when a
  // rank fails, and after `limit` with the ranks that did not come.
  Result<std::vector<std::string>> Exchange(const std::string& name, const std::string& value,
                                            std::chrono::milliseconds limit);

  // Tells all others that this rank stops because of `status`; returns when that is on its way.
  // Nothing is told if a failure of another rank is known already.
  void Fail(const Status& status);

  // Returns once all ranks are here; from then on nobody's end is a failure.
  Status Leave(std::chrono::milliseconds limit);

  // What ended the ranks' work, waiting up to `wait` for it; nothing if all is well so far.
  std::optional<Status> Failure(std::chrono::milliseconds wait);

  // Called once when the ranks' work has failed, by this object's thread or, if it has failed
  // already or this rank's own Fail is the cause, by the caller's. Returns a number for
  // RemoveListener. `own`: whether this rank's own Fail counts too.
  enum class Whose { kOthers, kAny };
  uint64_t AddListener(Whose whose, std::function<void(const Status&)> callback);
  // After it the callback is not running and will not run. Not from within a callback.
  void RemoveListener(uint64_t listener);

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    FrameSocket socket;
    uint32_t rank = 0;
    bool left = false;  // said farewell: its connection may close
    Clock::time_point heard;
  };
  struct Listener {
    Whose whose;
    std::function<void(const Status&)> callback;
  };

  void Run();
  void Turn(Clock::time_point& next_beat, Clock::time_point& last_turn) REQUIRES_LOCK(mutex_);
  void ReadPeer(Peer& peer) REQUIRES_LOCK(mutex_);
  void Handle(Peer& peer, Frame& frame) REQUIRES_LOCK(mutex_);
  void HandleArrival(uint32_t rank, std::string name, std::string value) REQUIRES_LOCK(mutex_);
  void HandleLeave(uint32_t rank) REQUIRES_LOCK(mutex_);
  // Rank 0: a rank that has left will come to no exchange any more.
  void LookForEarlyEnd() REQUIRES_LOCK(mutex_);
  void HandleFailure(uint32_t rank, const Frame& frame) REQUIRES_LOCK(mutex_);
  void LookForStalls(Clock::time_point now) REQUIRES_LOCK(mutex_);
  // The first failure counts. At rank 0 the others are told.
  void SetFailure(uint32_t rank, const Status& status) REQUIRES_LOCK(mutex_);
  void QueueToAll(const Frame& frame) REQUIRES_LOCK(mutex_);
  void FlushAll() REQUIRES_LOCK(mutex_);
  bool AllSent() REQUIRES_LOCK(mutex_);
  void CallListeners() EXCLUDES_LOCK(mutex_);
  void Wake();
  Status Failed(uint32_t rank, const std::string& why) const;
  std::string MissingText(const std::vector<uint32_t>& ranks) const;
  bool at_hub() const { return options_.rank == 0; }

  const RankWatchOptions options_;
  UniqueFd wake_;  // an eventfd: something was queued, or the end has come

  Mutex mutex_;
  CondVar changed_;
  std::vector<Peer> peers_ GUARDED_BY(mutex_);
  bool stop_ GUARDED_BY(mutex_) = false;
  std::optional<Status> failure_ GUARDED_BY(mutex_);
  bool failure_is_own_ GUARDED_BY(mutex_) = false;
  bool all_left_ GUARDED_BY(mutex_) = false;
  std::vector<bool> has_left_ GUARDED_BY(mutex_);  // rank 0: who said farewell
  // Rank 0: who came to the exchange under way, and with which name and value.
  std::map<uint32_t, std::pair<std::string, std::string>> arrived_ GUARDED_BY(mutex_);
  std::optional<std::vector<std::string>> answers_ GUARDED_BY(mutex_);
  uint64_t next_listener_ GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, Listener> listeners_ GUARDED_BY(mutex_);

  // Held while callbacks run, so that RemoveListener waits for them.
  Mutex calling_;
  std::thread thread_;
};

}  // namespace marea
