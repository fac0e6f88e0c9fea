#include "engine/comm/rendezvous.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <thread>
#include <utility>

#include "engine/comm/run_bounded.h"

namespace marea {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLookEvery{20};
// How long rank 0 keeps its store open after a refusal, so that all others read it.
constexpr milliseconds kLinger{2000};
// What the last rank to come still has for the connection to rank 0.
constexpr milliseconds kConnectAtLeast{5000};
// How long to ask who holds a port that is taken.
constexpr milliseconds kAskHolder{3000};
// What a connection made at the last moment has for its first answer.
constexpr milliseconds kLastAnswer{1000};
constexpr char kEntered[] = "entered";
constexpr char kRefused[] = "refused";
constexpr char kHeard[] = "heard";
constexpr char kLine[] = "line";

enum Kind : uint8_t { kHello = 101, kWelcome };

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  size_t start = 0;
  for (size_t end = 0; end != std::string::npos; start = end + 1) {
    end = text.find('\n', start);
    lines.push_back(text.substr(start, end - start));
  }
  return lines;
}

std::string RandomText() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

// What a rank enters in the store.
struct Entry {
  std::string host;
  std::string process;
  std::string world_size;
  std::string number;  // random: two containers may share host and process

  std::string Text() const {
    return fmt::format("{}\n{}\n{}\n{}", host, process, world_size, number);
  }
  std::string Who() const { return fmt::format("process {} on host {}", process, host); }
};

Entry ParseEntry(const std::string& text) {
  std::vector<std::string> lines = Lines(text);
  lines.resize(4);
  return Entry{lines[0], lines[1], lines[2], lines[3]};
}

std::string Title(uint32_t rank, const Entry& entry) {
  return fmt::format("rank {} (host {}, process {})", rank, entry.host, entry.process);
}

// "rank 2", "ranks 2 and 3", "ranks 1, 2 and 5".
std::string RanksText(const std::vector<uint32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::optional<Frame> WaitForFrame(FrameSocket& socket, Deadline deadline) {
  while (steady_clock::now() < deadline) {
    const bool open = socket.Receive();
    if (std::optional<Frame> frame = socket.Take()) return frame;
    if (!open) return std::nullopt;
    pollfd wait{socket.fd(), POLLIN, 0};
    ::poll(&wait, 1, static_cast<int>(kLookEvery.count()));
  }
  return std::nullopt;
}

class Attendee {
 public:
  Attendee(const World& world, const RankGroupOptions& options, Deadline deadline)
      : world_(world),
        options_(options),
        deadline_(deadline),
        own_{HostName(), std::to_string(::getpid()), std::to_string(world.size), RandomText()} {}

  Result<Meeting> Attend() {
    meeting_.store_prefix = fmt::format("marea/{}/", world_.restart);
    MAREA_ASSIGN_OR_RETURN(meeting_.local_address, LocalAddress(world_));
    MAREA_RETURN_IF_ERROR(OpenStore());
    MAREA_RETURN_IF_ERROR(Enter());
    MAREA_RETURN_IF_ERROR(world_.rank == 0 ? Welcome() : Follow());
    return std::move(meeting_);
  }

 private:
  bool serves() const { return world_.rank == 0 && !world_.agent_store; }
  std::string Place() const { return HostPort(world_.master_address, world_.master_port); }
  std::string Key(const std::string& name) const { return meeting_.store_prefix + name; }
  std::string RankKey(uint32_t rank) const { return Key(fmt::format("rank/{}", rank)); }
  RendezvousStore& store() { return *meeting_.store; }

  Status OpenStore() {
    if (serves()) {
      Result<Listener> listener = ListenOn(world_.master_port);
      if (!listener.ok()) {
        return listener.status().code() == ErrorCode::kBusy ? PortTaken() : listener.status();
      }
      MAREA_ASSIGN_OR_RETURN(meeting_.store,
                             RendezvousStore::Serve(std::move(listener).value(), options_.timeout));
      return Status::Ok();
    }
    auto asked = Ask(world_.master_address, deadline_);
    if (!asked) {
      return Status::Failed(
          fmt::format("rank {} is not answered by what takes connections at {}: it is no rank 0 of "
                      "this run, or "
                      "it was stopped; choose another MASTER_PORT",
                      world_.rank, Place()));
    }
    auto& connected = *asked;
    if (!connected.ok()) {
      return Status::Failed(fmt::format(
          "rank {} met nobody at {} within {}: {}; is rank 0 running there, and are MASTER_ADDR "
          "and MASTER_PORT the same for all ranks?",
          world_.rank, Place(), SecondsText(options_.timeout), connected.status().message()));
    }
    meeting_.store = std::move(connected).value();
    return Status::Ok();
  }

  // A store's client; nothing if who answers never says a word.
  using Asked = Result<std::unique_ptr<RendezvousStore>>;
  std::optional<Asked> Ask(const std::string& host, Deadline until) {
    return RunBounded<Asked>(until + kLastAnswer, [host, port = world_.master_port, until] {
      return RendezvousStore::Connect(host, port, until);
    });
  }

  // Somebody listens where this rank 0 should: another rank 0 of the run, or a stranger.
  Status PortTaken() {
    const Deadline ask_until = steady_clock::now() + kAskHolder;
    auto asked = Ask("127.0.0.1", ask_until);
    if (asked && asked->ok()) {
      meeting_.store = std::move(*asked).value();
      const Result<bool> known = store().Has(RankKey(0));
      if (known.ok() && known.value()) return Enter();
    }
    return Status::Failed(
        fmt::format("port {} of {} is taken by another program: choose another MASTER_PORT (a "
                    "free one, the same for all ranks)",
                    world_.master_port, own_.host));
  }

  // Ends the meeting for all, those who come later included.
  Status Refuse(const std::string& sentence) {
    const Result<std::string> first = store().SetOnce(Key(kRefused), sentence);
    Linger();
    return Status::Failed(first.ok() ? first.value() : sentence);
  }

  void Linger() {
    Result<int64_t> heard = store().Add(Key(kHeard), 1);
    const Deadline until = steady_clock::now() + kLinger;
    while (serves() && heard.ok() && steady_clock::now() < until) {
      const Result<int64_t> entered = store().Add(Key(kEntered), 0);
      if (!entered.ok() || heard.value() >= entered.value()) return;
      std::this_thread::sleep_for(kLookEvery);
      heard = store().Add(Key(kHeard), 0);
    }
  }

  Status LookForRefusal() {
    MAREA_ASSIGN_OR_RETURN(const bool refused, store().Has(Key(kRefused)));
    if (!refused) return Status::Ok();
    MAREA_ASSIGN_OR_RETURN(const std::string sentence, store().Get(Key(kRefused)));
    Linger();
    return Status::Failed(sentence);
  }

  Status Enter() {
    MAREA_RETURN_IF_ERROR(store().Add(Key(kEntered), 1).status());
    MAREA_ASSIGN_OR_RETURN(const std::string text,
                           store().SetOnce(RankKey(world_.rank), own_.Text()));
    if (text == own_.Text()) return Status::Ok();
    return Refuse(fmt::format("rank {} was started twice: by {} and by {}; start each rank once",
                              world_.rank, ParseEntry(text).Who(), own_.Who()));
  }

  Result<Entry> EntryOf(uint32_t rank) {
    MAREA_ASSIGN_OR_RETURN(const std::string text, store().Get(RankKey(rank)));
    return ParseEntry(text);
  }

  Status CheckWorldSize(uint32_t rank, const Entry& entry, const Entry& first) {
    if (entry.world_size == first.world_size) return Status::Ok();
    return Refuse(
        fmt::format("{} was started with world size {}, rank 0 with {}; start all ranks with the "
                    "same command",
                    Title(rank, entry), entry.world_size, first.world_size));
  }

  Status RefuseTheMissing() {
    std::vector<uint32_t> missing;
    for (uint32_t rank = 0; rank < world_.size; ++rank) {
      MAREA_ASSIGN_OR_RETURN(const bool there, store().Has(RankKey(rank)));
      if (!there) missing.push_back(rank);
    }
    if (missing.empty()) {
      return Refuse(fmt::format("rank 0 of {} did not open its line within {}", world_.size,
                                SecondsText(options_.timeout)));
    }
    return Refuse(fmt::format("{} of {} did not come to {} within {}", RanksText(missing),
                              world_.size, Place(), SecondsText(options_.timeout)));
  }

  Status WaitForAll() {
    uint32_t next = 0;  // all before it are there
    while (next < world_.size) {
      MAREA_RETURN_IF_ERROR(LookForRefusal());
      MAREA_ASSIGN_OR_RETURN(const bool there, store().Has(RankKey(next)));
      if (there) {
        ++next;
        continue;
      }
      if (steady_clock::now() > deadline_) return RefuseTheMissing();
      std::this_thread::sleep_for(kLookEvery);
    }
    return Status::Ok();
  }

  Status Welcome() {
    MAREA_RETURN_IF_ERROR(WaitForAll());
    for (uint32_t rank = 0; rank < world_.size; ++rank) {
      MAREA_ASSIGN_OR_RETURN(const Entry entry, EntryOf(rank));
      MAREA_RETURN_IF_ERROR(CheckWorldSize(rank, entry, own_));
      meeting_.titles.push_back(Title(rank, entry));
    }
    MAREA_ASSIGN_OR_RETURN(const Listener listener, ListenOn(0));
    const std::string password = RandomText();
    MAREA_RETURN_IF_ERROR(store().Set(
        Key(kLine), fmt::format("{}\n{}\n{}", meeting_.local_address, listener.port, password)));
    MAREA_RETURN_IF_ERROR(Accept(listener, password));
    for (FrameSocket& socket : meeting_.sockets) {
      socket.Queue(Frame{kWelcome, meeting_.titles});
      while (socket.Flush() && socket.has_unsent()) std::this_thread::sleep_for(kLookEvery);
    }
    return Status::Ok();
  }

  // Takes the connections of ranks 1..; whoever does not know the password is turned away.
  Status Accept(const Listener& listener, const std::string& password) {
    const Deadline until = std::max(deadline_, steady_clock::now() + kConnectAtLeast);
    meeting_.sockets.resize(world_.size - 1);
    uint32_t missing = world_.size - 1;
    std::vector<FrameSocket> strangers;
    while (missing > 0) {
      if (steady_clock::now() > until) return RefuseTheUnconnected(listener.port);
      MAREA_RETURN_IF_ERROR(LookForRefusal());
      pollfd wait{listener.fd.get(), POLLIN, 0};
      if (::poll(&wait, 1, static_cast<int>(kLookEvery.count())) > 0) {
        UniqueFd fd(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (fd.valid()) strangers.emplace_back(std::move(fd));
      }
      for (FrameSocket& socket : strangers) {
        const bool open = socket.Receive();
        const std::optional<Frame> hello = socket.Take();
        if (!hello && open) continue;
        const std::optional<uint32_t> rank = hello ? HelloOf(*hello, password) : std::nullopt;
        if (rank && !meeting_.sockets[*rank - 1].open()) {
          meeting_.sockets[*rank - 1] = std::move(socket);
          --missing;
        }
        socket.Close();
      }
      std::erase_if(strangers, [](const FrameSocket& socket) { return !socket.open(); });
    }
    return Status::Ok();
  }

  std::optional<uint32_t> HelloOf(const Frame& frame, const std::string& password) {
    if (frame.kind != kHello || frame.texts.size() != 2) return {};
    const auto rank = static_cast<uint32_t>(std::atoi(frame.texts[0].c_str()));
    if (frame.texts[1] != password || rank == 0 || rank >= world_.size) return {};
    return rank;
  }

  Status RefuseTheUnconnected(uint16_t port) {
    std::vector<uint32_t> missing;
    for (uint32_t rank = 1; rank < world_.size; ++rank) {
      if (!meeting_.sockets[rank - 1].open()) missing.push_back(rank);
    }
    return Refuse(fmt::format(
        "{} of {} came to {} but did not reach rank 0 at {}: let no firewall stand between the "
        "machines, or name their common interface in GLOO_SOCKET_IFNAME",
        RanksText(missing), world_.size, Place(), HostPort(meeting_.local_address, port)));
  }

  Status WaitForLine() {
    bool size_checked = false;
    while (true) {
      MAREA_RETURN_IF_ERROR(LookForRefusal());
      if (!size_checked) {
        MAREA_ASSIGN_OR_RETURN(size_checked, store().Has(RankKey(0)));
        if (size_checked) {
          MAREA_ASSIGN_OR_RETURN(const Entry first, EntryOf(0));
          MAREA_RETURN_IF_ERROR(CheckWorldSize(world_.rank, own_, first));
        }
      }
      MAREA_ASSIGN_OR_RETURN(const bool open, store().Has(Key(kLine)));
      if (open) return Status::Ok();
      // Rank 0 counts from about the same moment and says the same to all: let it.
      if (steady_clock::now() > deadline_ + kLinger / 2) return RefuseTheMissing();
      std::this_thread::sleep_for(kLookEvery);
    }
  }

  Status Follow() {
    MAREA_RETURN_IF_ERROR(WaitForLine());
    MAREA_ASSIGN_OR_RETURN(const std::string text, store().Get(Key(kLine)));
    std::vector<std::string> line = Lines(text);
    line.resize(3);
    const auto port = static_cast<uint16_t>(std::atoi(line[1].c_str()));
    const Deadline until = std::max(deadline_, steady_clock::now() + kConnectAtLeast);
    Result<UniqueFd> connected = ConnectTo(line[0], port, until);
    FrameSocket socket;
    std::optional<Frame> welcome;
    if (connected.ok()) {
      socket = FrameSocket(std::move(connected).value());
      socket.Queue(Frame{kHello, {std::to_string(world_.rank), line[2]}});
      if (socket.Flush()) welcome = WaitForFrame(socket, until + kLinger / 2);
    }
    if (welcome && welcome->kind == kWelcome && welcome->texts.size() == world_.size) {
      meeting_.titles = std::move(welcome->texts);
      meeting_.sockets.push_back(std::move(socket));
      return Status::Ok();
    }
    MAREA_RETURN_IF_ERROR(LookForRefusal());
    return Status::Failed(fmt::format(
        "rank {} {} rank 0 at {}: let no firewall stand between the machines, or name their common "
        "interface in GLOO_SOCKET_IFNAME",
        world_.rank, connected.ok() ? "got no welcome from" : "cannot reach",
        HostPort(line[0], port)));
  }

  const World& world_;
  const RankGroupOptions& options_;
  const Deadline deadline_;
  const Entry own_;
  Meeting meeting_;
};

}  // namespace

Result<Meeting> Meet(const World& world, const RankGroupOptions& options, Deadline deadline) {
  return Attendee(world, options, deadline).Attend();
}

}  // namespace marea
