// The ranks of one run: they meet, make sure that they do the same, and notice each other's
// failures.
//
// Joining goes through c10d's TCPStore at MASTER_ADDR:MASTER_PORT (c10d_store.h), served by rank 0
// or by torchrun's agent; then each rank holds one TCP connection to rank 0 (rank_watch.h).
//
// How soon a failure is known, everywhere and with its cause:
//   a rank that calls Fail, and one that dies     at once (well below a second)
//   a rank that is stopped, or whose machine is gone   after `stall_limit`
// A failure is final: every call returns it from then on, and so does every communicator.
//
// Thread rule: any thread; of Agree, Exchange, Barrier and Leave one at a time, in the same order
// on all ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/world.h"
#include "io/mutex.h"
#include "io/status.h"

namespace marea {

struct RankGroupOptions {
  std::chrono::milliseconds timeout{60'000};  // of Join, as a whole
  std::chrono::milliseconds beat{1000};
  std::chrono::milliseconds stall_limit{30'000};
  // How long a rank waits for the others in Agree, Exchange, Barrier and Leave while all of them
  // are alive.
  std::chrono::milliseconds wait_limit{30 * 60'000};
  std::chrono::milliseconds cause_wait{5000};  // of CauseOf
};

class RankWatch;

class RankGroup {
 public:
  // Blocks until all ranks are there. One sentence otherwise, within `options.timeout` and a few
  // seconds: nobody or another program at the address, the port taken, which ranks did not come,
  // another world size, a rank started twice. A world of one rank meets nobody and opens no port.
  // With more, SIGPIPE is ignored in this process from here on: Gloo writes to connections whose
  // other end may be gone.
  static Result<std::unique_ptr<RankGroup>> Join(const World& world,
                                                 const RankGroupOptions& options = {});
  // Without Leave or Fail before, the others will say that this rank died. Every communicator made
  // from the group must be gone.
  ~RankGroup();

  const World& world() const { return world_; }
  const RankGroupOptions& options() const { return options_; }
  // "rank 1 (host gpu2, process 4711)".
  const std::string& title(uint32_t rank) const { return titles_[rank]; }

  // Every rank passes the same list of names. If a value differs on some rank, every rank gets
  // InvalidArgument with the first difference, by rank and then by place in the list: "rank 1 (host
  // h, process p) was started with another seed than rank 0: 8, not 7; start all ranks with the
  // same command". The group remains usable.
  Status Agree(const std::vector<std::pair<std::string, std::string>>& facts);
  // `what` is where this rank is; a rank that is somewhere else fails them all.
  Status Barrier(const std::string& what);
  // Small texts (below 64 MiB together) of all ranks, by rank.
  Result<std::vector<std::string>> Exchange(const std::string& name, const std::string& value);

  // `callback` is called once when another rank has failed, died or stalled, with a sentence that
  // names the rank and the cause. It runs on the watching thread (at once, on the caller's, if that
  // is known already) and must not block nor destroy the group.
  uint64_t OnFailure(std::function<void(const Status&)> callback);
  // With what OnFailure or AddAborter returned: it is not running and will not run.
  void RemoveListener(uint64_t listener);
  // This rank stops because of `status`: the others are told why at once, and this rank's
  // communicators stop. Leave is not needed after it. Does nothing if a failure is known already.
  void Fail(const Status& status);
  // The failure that is known, waiting up to options().cause_wait for it: what turns "connection
  // closed by peer" into its cause. `own` if there is none.
  Status CauseOf(const Status& own);
  // The failure that is known by now, if any.
  std::optional<Status> Failure();
  // Normal end: returns once all ranks are here, so that none takes the others' end for a failure.
  Status Leave();

  // For communicators. `abort` is called once, from the watching thread or that of Fail, when the
  // group has failed.
  uint64_t AddAborter(std::function<void(const Status&)> abort);
  // False if a communicator of this name was made before.
  bool TakeName(const std::string& name);
  // The address of this rank that the others can reach, and a prefix for keys in the store that no
  // other run has.
  const std::string& local_address() const { return local_address_; }
  const std::string& store_prefix() const { return store_prefix_; }

 private:
  struct Store;  // keeps the store that this rank serves
  RankGroup(const World& world, const RankGroupOptions& options);

  const World world_;
  const RankGroupOptions options_;
  std::vector<std::string> titles_;
  std::string local_address_;
  std::string store_prefix_;
  std::unique_ptr<Store> store_;
  Mutex mutex_;
  std::set<std::string> names_ GUARDED_BY(mutex_);
  std::unique_ptr<RankWatch> watch_;  // none where the world has one rank
};

}  // namespace marea
