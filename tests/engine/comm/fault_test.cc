// What the other ranks hear, and how soon, when a rank dies, stalls or fails: real processes, real
// signals.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/c10d_store.h"
#include "engine/comm/communicator.h"
#include "tests/engine/comm/rank_processes.h"

namespace marea {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kBeat{200};
constexpr milliseconds kStallLimit{2000};
// Well below the two limits that would end a wait otherwise: no test passes by a time-out.
constexpr double kAtOnceSeconds = 1.5;

RankGroupOptions Options() {
  RankGroupOptions options;
  options.timeout = std::chrono::seconds(20);
  options.beat = kBeat;
  options.stall_limit = kStallLimit;
  return options;
}

// What the ranks do when the fault comes.
enum class Doing { kReducing, kGathering, kComputing, kLeaving };

std::string Work(RankGroup& group, Doing doing) {
  auto talk = MakeGlooCommunicator(group, "work");
  if (!talk.ok()) return talk.status().message();
  RankProcesses::Say("ready");
  std::vector<float> whole(group.world().size * size_t{100'000});
  const auto bytes = std::as_writable_bytes(std::span(whole));
  const size_t shard = bytes.size() / group.world().size;
  const auto end = steady_clock::now() + std::chrono::seconds(20);
  Status status = Status::Ok();
  while (status.ok() && steady_clock::now() < end) {
    switch (doing) {
      case Doing::kReducing:
        status = talk.value()->ReduceScatter(whole);
        break;
      case Doing::kGathering:
        status = talk.value()->AllGather(bytes.subspan(group.world().rank * shard, shard), bytes);
        break;
      case Doing::kComputing: {
        std::this_thread::sleep_for(milliseconds(10));
        const auto failure = group.Failure();
        if (failure) status = *failure;
        break;
      }
      case Doing::kLeaving:
        return group.Leave().message();
    }
  }
  // What a failed communicator says afterwards is the same.
  if (!status.ok() && doing != Doing::kComputing) {
    const Status again = talk.value()->ReduceScatter(whole);
    if (again.message() != status.message()) return "then said: " + again.message();
  }
  return status.message();
}

struct Ranks {
  RankProcesses processes;
  std::vector<std::string> titles;
};

// Starts `size` ranks and returns when all are at work.
void StartRanks(Ranks& ranks, uint32_t size, const RankBody& body) {
  const uint16_t port = FreePort();
  for (uint32_t rank = 0; rank < size; ++rank) {
    ranks.processes.Start([=]() -> std::string {
      auto group = RankGroup::Join(LocalWorld(rank, size, port), Options());
      if (!group.ok()) return group.status().message();
      return body(*group.value());
    });
    char host[256] = "";
    ::gethostname(host, sizeof(host) - 1);
    ranks.titles.push_back(
        fmt::format("rank {} (host {}, process {})", rank, host, ranks.processes.process(rank)));
  }
  for (uint32_t rank = 0; rank < size; ++rank) {
    ASSERT_TRUE(ranks.processes.Heard(rank, "ready")) << ranks.processes.Wait(rank).text;
  }
}

// Every rank but `faulty` ends with `sentence`, within `limit_seconds` of now.
void ExpectOthersSay(Ranks& ranks, uint32_t faulty, const std::string& sentence,
                     double limit_seconds) {
  const auto start = steady_clock::now();
  for (uint32_t rank = 0; rank < ranks.titles.size(); ++rank) {
    if (rank == faulty) continue;
    EXPECT_EQ(sentence, ranks.processes.Wait(rank).text) << "rank " << rank;
  }
  const std::chrono::duration<double> took = steady_clock::now() - start;
  EXPECT_LT(took.count(), limit_seconds);
}

std::string Died(const Ranks& ranks, uint32_t rank) {
  return ranks.titles[rank] +
         " ended without a word: it was killed or it crashed; see what it printed last";
}

TEST(Faults, AKilledRankIsNamedAtOnce) {
  for (const Doing doing : {Doing::kReducing, Doing::kGathering, Doing::kComputing}) {
    for (const uint32_t killed : {0u, 2u}) {
      Ranks ranks;
      StartRanks(ranks, 3, [=](RankGroup& group) { return Work(group, doing); });
      ranks.processes.Signal(killed, SIGKILL);
      ExpectOthersSay(ranks, killed, Died(ranks, killed), kAtOnceSeconds);
    }
  }
}

TEST(Faults, OneOfEightIsKilled) {
  Ranks ranks;
  StartRanks(ranks, 8, [](RankGroup& group) { return Work(group, Doing::kReducing); });
  ranks.processes.Signal(5, SIGKILL);
  ExpectOthersSay(ranks, 5, Died(ranks, 5), 3);
}

TEST(Faults, AStoppedRankIsNamedAfterTheLimit) {
  for (const uint32_t stopped : {0u, 1u}) {
    Ranks ranks;
    StartRanks(ranks, 3, [](RankGroup& group) { return Work(group, Doing::kGathering); });
    const auto start = steady_clock::now();
    ranks.processes.Signal(stopped, SIGSTOP);
    ExpectOthersSay(ranks, stopped,
                    ranks.titles[stopped] +
                        " has not answered for 2 s: it was stopped, or its machine or the "
                        "network to it is gone",
                    4);
    EXPECT_GT(steady_clock::now() - start, kStallLimit - 2 * kBeat);
    // Woken again it stops as well.
    ranks.processes.Signal(stopped, SIGCONT);
    const std::string text = ranks.processes.Wait(stopped, std::chrono::seconds(4)).text;
    EXPECT_TRUE(text.find("has not answered") != std::string::npos ||
                text.find("ended without a word") != std::string::npos)
        << text;
  }
}

TEST(Faults, AStopOfAllTogetherDisturbsNobody) {
  Ranks ranks;
  StartRanks(ranks, 3, [](RankGroup& group) -> std::string {
    RankProcesses::Say("ready");
    std::this_thread::sleep_for(milliseconds(1000));
    const auto failure = group.Failure();
    return failure ? failure->message() : group.Leave().message();
  });
  // As when a machine is put to sleep: longer than the limit, but nobody is to blame.
  for (const size_t rank : {0, 1, 2}) ranks.processes.Signal(rank, SIGSTOP);
  std::this_thread::sleep_for(kStallLimit + milliseconds(500));
  for (const size_t rank : {0, 1, 2}) ranks.processes.Signal(rank, SIGCONT);
  for (const size_t rank : {0, 1, 2}) EXPECT_EQ("", ranks.processes.Wait(rank).text);
}

TEST(Faults, WhatARankFailsOfIsToldToAll) {
  for (const uint32_t failing : {0u, 1u}) {
    Ranks ranks;
    StartRanks(ranks, 3, [=](RankGroup& group) -> std::string {
      if (group.world().rank != failing) return Work(group, Doing::kReducing);
      auto talk = MakeGlooCommunicator(group, "work");
      RankProcesses::Say("ready");
      std::this_thread::sleep_for(milliseconds(100));
      group.Fail(Status::Failed("/nvme/shards: no space left on device"));
      return group.CauseOf(Status::Failed("own")).message();
    });
    ExpectOthersSay(ranks, failing,
                    ranks.titles[failing] + " failed: /nvme/shards: no space left on device",
                    kAtOnceSeconds);
    EXPECT_EQ("/nvme/shards: no space left on device", ranks.processes.Wait(failing).text);
  }
}

TEST(Faults, TheCallbackHearsOfOthersOnly) {
  Ranks ranks;
  StartRanks(ranks, 2, [](RankGroup& group) -> std::string {
    Mutex mutex;
    CondVar changed;
    std::vector<std::string> heard;
    group.OnFailure([&](const Status& status) {
      MutexLock lock(mutex);
      heard.push_back(status.message());
      changed.NotifyAll();
    });
    RankProcesses::Say("ready");
    if (group.world().rank == 1) {
      std::this_thread::sleep_for(milliseconds(100));
      group.Fail(Status::Failed("first"));
      group.Fail(Status::Failed("second"));
      std::this_thread::sleep_for(milliseconds(500));
      MutexLock lock(mutex);
      return heard.empty() ? "" : "heard of itself";
    }
    MutexLock lock(mutex);
    while (heard.empty()) changed.Wait(mutex);
    changed.WaitFor(mutex, milliseconds(500));
    return heard.size() == 1 ? heard[0] : "heard twice";
  });
  EXPECT_EQ(ranks.titles[1] + " failed: first", ranks.processes.Wait(0).text);
  EXPECT_EQ("", ranks.processes.Wait(1).text);
}

TEST(Faults, ARankThatDiesBeforeItsConnectionsStand) {
  Ranks ranks;
  StartRanks(ranks, 3, [](RankGroup& group) -> std::string {
    RankProcesses::Say("ready");
    if (group.world().rank == 1) std::this_thread::sleep_for(std::chrono::seconds(10));
    return MakeGlooCommunicator(group, "late").status().message();
  });
  std::this_thread::sleep_for(milliseconds(200));
  ranks.processes.Signal(1, SIGKILL);
  ExpectOthersSay(ranks, 1, Died(ranks, 1), kAtOnceSeconds);
}

TEST(Faults, EndingWithoutFarewellIsAFailure) {
  Ranks ranks;
  StartRanks(ranks, 3, [](RankGroup& group) -> std::string {
    if (group.world().rank != 2) return Work(group, Doing::kLeaving);
    auto talk = MakeGlooCommunicator(group, "work");
    RankProcesses::Say("ready");
    std::this_thread::sleep_for(milliseconds(300));
    return "";
  });
  ExpectOthersSay(ranks, 2, Died(ranks, 2), kAtOnceSeconds);
}

TEST(Faults, ASecondStartDoesNotDisturbRanksAtWork) {
  const uint16_t port = FreePort();
  RankProcesses processes;
  const auto start = [&](uint32_t rank) {
    processes.Start([=]() -> std::string {
      auto group = RankGroup::Join(LocalWorld(rank, 2, port), Options());
      if (!group.ok()) return group.status().message();
      RankProcesses::Say("ready");
      std::this_thread::sleep_for(milliseconds(1500));
      auto talk = MakeGlooCommunicator(*group.value(), "later");
      if (!talk.ok()) return talk.status().message();
      std::vector<float> whole(100);
      const Status status = talk.value()->ReduceScatter(whole);
      return status.ok() ? group.value()->Leave().message() : status.message();
    });
  };
  start(0);
  start(1);
  ASSERT_TRUE(processes.Heard(0, "ready"));
  ASSERT_TRUE(processes.Heard(1, "ready"));
  start(0);
  start(1);
  for (const size_t again : {2, 3}) {
    const std::string text = processes.Wait(again).text;
    EXPECT_NE(std::string::npos, text.find("was started twice: by process ")) << text;
  }
  EXPECT_EQ("", processes.Wait(0).text);
  EXPECT_EQ("", processes.Wait(1).text);
}

TEST(Faults, RankZeroDiesBeforeAllAreThere) {
  const uint16_t port = FreePort();
  RankProcesses processes;
  for (const uint32_t rank : {0u, 1u}) {
    processes.Start(
        [=] { return RankGroup::Join(LocalWorld(rank, 3, port), Options()).status().message(); });
  }
  std::this_thread::sleep_for(milliseconds(700));
  processes.Signal(0, SIGKILL);
  const RankProcesses::End end = processes.Wait(1);
  EXPECT_TRUE(end.text.starts_with("the store that rank 0 or the agent serves is gone"))
      << end.text;
  EXPECT_LT(end.seconds, 5);
}

TEST(Faults, AnAgentServesTheStoreThroughRestarts) {
  auto listener = ListenOn(0);
  ASSERT_TRUE(listener.ok());
  const uint16_t port = listener.value().port;
  RankProcesses processes;
  const size_t agent = processes.Start([&]() -> std::string {
    auto store = RendezvousStore::Serve(std::move(listener).value(), milliseconds(10'000));
    RankProcesses::Say(store.ok() ? "serving" : store.status().message());
    std::this_thread::sleep_for(std::chrono::seconds(20));
    return "";
  });
  listener.value().fd.Reset();
  ASSERT_TRUE(processes.Heard(agent, "serving"));
  for (uint32_t restart = 0; restart < 2; ++restart) {
    std::vector<size_t> numbers;
    for (uint32_t rank = 0; rank < 3; ++rank) {
      World world = LocalWorld(rank, 3, port);
      world.agent_store = true;
      world.restart = restart;
      numbers.push_back(processes.Start([=]() -> std::string {
        auto group = RankGroup::Join(world, Options());
        if (!group.ok()) return group.status().message();
        auto talk = MakeGlooCommunicator(*group.value(), "weights");
        if (!talk.ok()) return talk.status().message();
        std::vector<float> whole(30);
        const Status status = talk.value()->ReduceScatter(whole);
        return status.ok() ? group.value()->Leave().message() : status.message();
      }));
    }
    for (const size_t number : numbers) EXPECT_EQ("", processes.Wait(number).text);
  }
}

}  // namespace
}  // namespace marea
