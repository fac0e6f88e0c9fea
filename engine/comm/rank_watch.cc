#include "engine/comm/rank_watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "engine/comm/network.h"

namespace marea {
namespace {

using std::chrono::milliseconds;

// What a message says. kFailure carries the rank and the sentence.
enum Kind : uint8_t { kBeat = 1, kArrive, kAnswers, kFailure, kLeave, kAllLeft };

// How long Fail and Leave wait for their last words to leave this machine.
constexpr milliseconds kLastWords{2000};

Frame FailureFrame(uint32_t rank, const Status& status) {
  return Frame{kFailure, {std::to_string(rank), status.message()}};
}

}  // namespace

RankWatch::RankWatch(RankWatchOptions options, std::vector<FrameSocket> peers)
    : options_(std::move(options)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  MAREA_CHECK(wake_.valid(), "no eventfd");
  has_left_.resize(options_.titles.size());
  for (size_t i = 0; i < peers.size(); ++i) {
    Peer peer;
    peer.socket = std::move(peers[i]);
    peer.rank = at_hub() ? static_cast<uint32_t>(i + 1) : 0;
    peer.heard = Clock::now();
    peers_.push_back(std::move(peer));
  }
  thread_ = std::thread([this] { Run(); });
}

RankWatch::~RankWatch() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  Wake();
  thread_.join();
}

void RankWatch::Wake() {
  const uint64_t one = 1;
  // A full counter wakes as well.
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
}

void RankWatch::Run() {
  Clock::time_point next_beat = Clock::now();
  Clock::time_point last_turn{};  // long ago: the others' silence counts from the first turn
  std::vector<pollfd> waits;
  while (true) {
    waits.assign(1, pollfd{wake_.get(), POLLIN, 0});
    bool failed = false;
    {
      MutexLock lock(mutex_);
      if (stop_) {
        FlushAll();
        return;
      }
      for (const Peer& peer : peers_) {
        if (!peer.socket.open()) continue;
        const int writing = peer.socket.has_unsent() ? POLLOUT : 0;
        waits.push_back(pollfd{peer.socket.fd(), static_cast<short>(POLLIN | writing), 0});
      }
    }
    const auto left = std::chrono::ceil<milliseconds>(next_beat - Clock::now());
    ::poll(waits.data(), waits.size(), static_cast<int>(std::max<int64_t>(left.count(), 0)));
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof(count));
    {
      MutexLock lock(mutex_);
      Turn(next_beat, last_turn);
      failed = failure_.has_value();
    }
    changed_.NotifyAll();
    if (failed) CallListeners();
  }
}

void RankWatch::Turn(Clock::time_point& next_beat, Clock::time_point& last_turn) {
  const Clock::time_point now = Clock::now();
  // This process itself was stopped, or only starts: it knows nothing of the others' silence.
  if (now - last_turn > 3 * options_.beat) {
    for (Peer& peer : peers_) peer.heard = now;
  }
  last_turn = now;
  for (Peer& peer : peers_) ReadPeer(peer);
  LookForStalls(now);
  if (now >= next_beat) {
    QueueToAll(Frame{kBeat, {}});
    next_beat = now + options_.beat;
  }
  FlushAll();
}

void RankWatch::ReadPeer(Peer& peer) {
  if (!peer.socket.open()) return;
  const bool open = peer.socket.Receive();
  while (std::optional<Frame> frame = peer.socket.Take()) {
    peer.heard = Clock::now();
    Handle(peer, *frame);
  }
  if (open) return;
  peer.socket.Close();
  if (peer.left || all_left_) return;
  SetFailure(peer.rank, Status::Failed(fmt::format("{} ended without a word: it was killed or it "
                                                   "crashed; see what it printed last",
                                                   options_.titles[peer.rank])));
}

void RankWatch::Handle(Peer& peer, Frame& frame) {
  switch (frame.kind) {
    case kArrive:
      if (at_hub() && frame.texts.size() == 2) {
        HandleArrival(peer.rank, std::move(frame.texts[0]), std::move(frame.texts[1]));
      }
      break;
    case kAnswers:
      answers_ = std::move(frame.texts);
      break;
    case kFailure:
      if (frame.texts.size() == 2) HandleFailure(peer.rank, frame);
      break;
    case kLeave:
      peer.left = true;
      HandleLeave(peer.rank);
      break;
    case kAllLeft:
      all_left_ = true;
      break;
    default:
      break;  // a beat
  }
}

void RankWatch::HandleArrival(uint32_t rank, std::string name, std::string value) {
  arrived_[rank] = {std::move(name), std::move(value)};
  LookForEarlyEnd();
  if (arrived_.size() < options_.titles.size()) return;
  std::vector<std::string> values;
  for (auto& [from, text] : arrived_) {
    if (text.first != arrived_[0].first) {
      SetFailure(from, Status::Failed(fmt::format(
                           "{} is at \"{}\" while rank 0 is at \"{}\": start all ranks with the "
                           "same command and the same build",
                           options_.titles[from], text.first, arrived_[0].first)));
      return;
    }
    values.push_back(std::move(text.second));
  }
  arrived_.clear();
  QueueToAll(Frame{kAnswers, values});
  answers_ = std::move(values);
}

void RankWatch::HandleLeave(uint32_t rank) {
  has_left_[rank] = true;
  LookForEarlyEnd();
  if (!at_hub() || !std::all_of(has_left_.begin(), has_left_.end(), [](bool b) { return b; })) {
    return;
  }
  all_left_ = true;
  QueueToAll(Frame{kAllLeft, {}});
}

void RankWatch::LookForEarlyEnd() {
  const auto left = std::find(has_left_.begin(), has_left_.end(), true);
  if (!at_hub() || left == has_left_.end() || arrived_.empty()) return;
  const auto rank = static_cast<uint32_t>(left - has_left_.begin());
  const auto& [other, text] = *arrived_.begin();
  SetFailure(rank, Status::Failed(fmt::format(
                       "{} came to its end while {} is at \"{}\": start all ranks with the same "
                       "command and the same build",
                       options_.titles[rank], options_.titles[other], text.first)));
}

void RankWatch::HandleFailure(uint32_t rank, const Frame& frame) {
  // Rank 0 has put it in words already. Whatever stopped that rank, here it is a failed run.
  if (!at_hub()) {
    const auto of = static_cast<uint32_t>(std::atoi(frame.texts[0].c_str()));
    return SetFailure(of, Status::Failed(frame.texts[1]));
  }
  SetFailure(rank, Failed(rank, frame.texts[1]));
}

Status RankWatch::Failed(uint32_t rank, const std::string& why) const {
  return Status::Failed(fmt::format("{} failed: {}", options_.titles[rank], why));
}

void RankWatch::LookForStalls(Clock::time_point now) {
  for (const Peer& peer : peers_) {
    if (!peer.socket.open() || peer.left || all_left_) continue;
    if (now - peer.heard < options_.stall_limit) continue;
    SetFailure(peer.rank, Status::Failed(fmt::format(
                              "{} has not answered for {}: it was stopped, or its "
                              "machine or the network to it is gone",
                              options_.titles[peer.rank], SecondsText(options_.stall_limit))));
  }
}

void RankWatch::SetFailure(uint32_t rank, const Status& status) {
  if (failure_ || all_left_) return;
  failure_ = status;
  if (at_hub()) QueueToAll(FailureFrame(rank, status));
}

void RankWatch::QueueToAll(const Frame& frame) {
  for (Peer& peer : peers_) peer.socket.Queue(frame);
}

void RankWatch::FlushAll() {
  // A connection that broke is found by the next Receive, after what it still holds.
  for (Peer& peer : peers_) {
    if (peer.socket.open()) peer.socket.Flush();
  }
}

bool RankWatch::AllSent() {
  return std::none_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return peer.socket.open() && peer.socket.has_unsent();
  });
}

Result<std::vector<std::string>> RankWatch::Exchange(const std::string& name,
                                                     const std::string& value, milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  MutexLock lock(mutex_);
  if (failure_) return *failure_;
  answers_.reset();
  if (at_hub()) {
    HandleArrival(0, name, value);
  } else {
    QueueToAll(Frame{kArrive, {name, value}});
  }
  Wake();
  while (!answers_ && !failure_ && Clock::now() < deadline) {
    changed_.WaitFor(mutex_, deadline - Clock::now());
  }
  if (failure_) return *failure_;
  if (answers_) {
    std::vector<std::string> answers = std::move(*answers_);
    answers_.reset();
    return answers;
  }
  std::vector<uint32_t> missing;
  for (uint32_t rank = 0; at_hub() && rank < options_.titles.size(); ++rank) {
    if (arrived_.count(rank) == 0) missing.push_back(rank);
  }
  return Status::Failed(fmt::format("{} did not come to \"{}\" within {}", MissingText(missing),
                                    name, SecondsText(limit)));
}

std::string RankWatch::MissingText(const std::vector<uint32_t>& ranks) const {
  if (ranks.empty()) return "another rank";
  std::string text;
  for (const uint32_t rank : ranks) {
    if (!text.empty()) text += ", ";
    text += options_.titles[rank];
  }
  return text;
}

void RankWatch::Fail(const Status& status) {
  const Clock::time_point deadline = Clock::now() + kLastWords;
  {
    MutexLock lock(mutex_);
    if (failure_ || all_left_) return;
    if (at_hub()) {
      QueueToAll(FailureFrame(0, Failed(0, status.message())));
    } else {
      QueueToAll(FailureFrame(options_.rank, status));
    }
    failure_ = status;
    failure_is_own_ = true;
    Wake();
    while (!AllSent() && Clock::now() < deadline) {
      changed_.WaitFor(mutex_, deadline - Clock::now());
    }
  }
  changed_.NotifyAll();
  CallListeners();
}

Status RankWatch::Leave(milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  MutexLock lock(mutex_);
  if (failure_) return *failure_;
  if (!at_hub()) QueueToAll(Frame{kLeave, {}});
  HandleLeave(options_.rank);
  Wake();
  while (!failure_ && Clock::now() < deadline && !(all_left_ && AllSent())) {
    changed_.WaitFor(mutex_, deadline - Clock::now());
  }
  if (failure_) return *failure_;
  if (all_left_) return Status::Ok();
  std::vector<uint32_t> missing;
  for (uint32_t rank = 0; at_hub() && rank < has_left_.size(); ++rank) {
    if (!has_left_[rank]) missing.push_back(rank);
  }
  return Status::Failed(fmt::format("{} did not come to the end within {}", MissingText(missing),
                                    SecondsText(limit)));
}

std::optional<Status> RankWatch::Failure(milliseconds wait) {
  const Clock::time_point deadline = Clock::now() + wait;
  MutexLock lock(mutex_);
  while (!failure_ && !all_left_ && Clock::now() < deadline) {
    changed_.WaitFor(mutex_, deadline - Clock::now());
  }
  return failure_;
}

uint64_t RankWatch::AddListener(Whose whose, std::function<void(const Status&)> callback) {
  uint64_t number = 0;
  bool failed = false;
  {
    MutexLock lock(mutex_);
    number = next_listener_++;
    listeners_[number] = Listener{whose, std::move(callback)};
    failed = failure_.has_value();
  }
  if (failed) CallListeners();
  return number;
}

void RankWatch::RemoveListener(uint64_t listener) {
  MutexLock calling(calling_);
  MutexLock lock(mutex_);
  listeners_.erase(listener);
}

void RankWatch::CallListeners() {
  MutexLock calling(calling_);
  std::vector<std::function<void(const Status&)>> callbacks;
  std::optional<Status> failure;
  {
    MutexLock lock(mutex_);
    failure = failure_;
    for (auto entry = listeners_.begin(); entry != listeners_.end();) {
      if (failure_is_own_ && entry->second.whose == Whose::kOthers) {
        ++entry;
        continue;
      }
      callbacks.push_back(std::move(entry->second.callback));
      entry = listeners_.erase(entry);
    }
  }
  for (const auto& callback : callbacks) callback(*failure);
}

}  // namespace marea
