#include "engine/comm/rank_group.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "engine/comm/rank_watch.h"
#include "engine/comm/rendezvous.h"
#include "engine/comm/run_bounded.h"

namespace marea {
namespace {

using std::chrono::milliseconds;

// What Meet takes beyond its deadline: the last rank's connection, and the words of a refusal.
constexpr milliseconds kGrace{10'000};

// Ends each name and each value in what Agree sends.
constexpr char kSeparator = '\0';

std::string PackFacts(const std::vector<std::pair<std::string, std::string>>& facts) {
  std::string text;
  for (const auto& [name, value] : facts) text += name + kSeparator + value + kSeparator;
  return text;
}

std::vector<std::pair<std::string, std::string>> UnpackFacts(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> facts;
  for (size_t start = 0; start < text.size();) {
    const size_t middle = text.find(kSeparator, start);
    const size_t end = text.find(kSeparator, middle + 1);
    if (middle == std::string::npos || end == std::string::npos) break;
    facts.emplace_back(text.substr(start, middle - start),
                       text.substr(middle + 1, end - middle - 1));
    start = end + 1;
  }
  return facts;
}

}  // namespace

struct RankGroup::Store {
  std::unique_ptr<RendezvousStore> store;
};

RankGroup::RankGroup(const World& world, const RankGroupOptions& options)
    : world_(world), options_(options) {}

RankGroup::~RankGroup() = default;

Result<std::unique_ptr<RankGroup>> RankGroup::Join(const World& world,
                                                   const RankGroupOptions& options) {
  std::unique_ptr<RankGroup> group(new RankGroup(world, options));
  if (world.size == 1) {
    group->titles_ = {fmt::format("rank 0 (host {}, process {})", HostName(), ::getpid())};
    return group;
  }
  // Gloo and c10d write to connections whose other end may be gone.
  if (::signal(SIGPIPE, SIG_IGN) == SIG_ERR) {
    return Status::Io("cannot have SIGPIPE ignored", errno);
  }
  const Deadline deadline = std::chrono::steady_clock::now() + options.timeout;
  auto met = RunBounded<Result<Meeting>>(
      deadline + kGrace, [world, options, deadline] { return Meet(world, options, deadline); });
  if (!met) {
    return Status::Failed(fmt::format(
        "what holds {} takes connections but does not answer within {}: it is no rank 0 of this "
        "run, or it was stopped; choose another MASTER_PORT",
        HostPort(world.master_address, world.master_port), SecondsText(options.timeout)));
  }
  MAREA_ASSIGN_OR_RETURN(Meeting meeting, std::move(*met));
  group->titles_ = meeting.titles;
  group->local_address_ = meeting.local_address;
  group->store_prefix_ = meeting.store_prefix;
  group->store_ = std::make_unique<Store>(Store{std::move(meeting.store)});
  RankWatchOptions watch;
  watch.rank = world.rank;
  watch.titles = std::move(meeting.titles);
  watch.beat = options.beat;
  watch.stall_limit = options.stall_limit;
  group->watch_ = std::make_unique<RankWatch>(std::move(watch), std::move(meeting.sockets));
  return group;
}

Status RankGroup::Agree(const std::vector<std::pair<std::string, std::string>>& facts) {
  MAREA_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                         Exchange("what the ranks were started with", PackFacts(facts)));
  const auto first = UnpackFacts(texts[0]);
  for (uint32_t rank = 1; rank < texts.size(); ++rank) {
    const auto other = UnpackFacts(texts[rank]);
    for (size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
      if (i < first.size() && i < other.size() && first[i] == other[i]) continue;
      const bool same_name =
          i < first.size() && i < other.size() && first[i].first == other[i].first;
      if (!same_name) {
        return Status::InvalidArgument(
            fmt::format("{} runs another build than rank 0; start all ranks with the same program",
                        titles_[rank]));
      }
      return Status::InvalidArgument(fmt::format(
          "{} was started with another {} than rank 0: {}, not {}; start all ranks with the same "
          "command",
          titles_[rank], first[i].first, other[i].second, first[i].second));
    }
  }
  return Status::Ok();
}

Status RankGroup::Barrier(const std::string& what) {
  return Exchange(what, "").status();
}

Result<std::vector<std::string>> RankGroup::Exchange(const std::string& name,
                                                     const std::string& value) {
  if (!watch_) return std::vector<std::string>{value};
  // Room for each text's length and the head of the message.
  if ((value.size() + 16) * world_.size > kFrameBytesMax) {
    return Status::InvalidArgument(
        fmt::format("{}: {} bytes are too many to exchange", name, value.size()));
  }
  return watch_->Exchange(name, value, options_.wait_limit);
}

uint64_t RankGroup::OnFailure(std::function<void(const Status&)> callback) {
  return watch_ ? watch_->AddListener(RankWatch::Whose::kOthers, std::move(callback)) : 0;
}

void RankGroup::RemoveListener(uint64_t listener) {
  if (watch_) watch_->RemoveListener(listener);
}

void RankGroup::Fail(const Status& status) {
  if (watch_) watch_->Fail(status);
}

std::optional<Status> RankGroup::Failure() {
  return watch_ ? watch_->Failure(milliseconds(0)) : std::nullopt;
}

Status RankGroup::CauseOf(const Status& own) {
  if (!watch_) return own;
  return watch_->Failure(options_.cause_wait).value_or(own);
}

Status RankGroup::Leave() {
  return watch_ ? watch_->Leave(options_.wait_limit) : Status::Ok();
}

uint64_t RankGroup::AddAborter(std::function<void(const Status&)> abort) {
  return watch_ ? watch_->AddListener(RankWatch::Whose::kAny, std::move(abort)) : 0;
}

bool RankGroup::TakeName(const std::string& name) {
  MutexLock lock(mutex_);
  return names_.insert(name).second;
}

}  // namespace marea
