// The line between ranks inside one process, so that the sanitizers see all of it: each rank is an
// object with threads of its own, connected by socket pairs.

#include "engine/comm/rank_watch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace marea {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{20'000};

struct Pair {
  UniqueFd first;
  UniqueFd second;
};

Pair Connected() {
  int ends[2];
  MAREA_CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "no socket pair");
  return Pair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

RankWatchOptions OptionsOf(uint32_t rank, uint32_t ranks) {
  RankWatchOptions options;
  options.rank = rank;
  for (uint32_t i = 0; i < ranks; ++i) options.titles.push_back(fmt::format("rank {} (t)", i));
  options.beat = milliseconds(20);
  return options;
}

std::vector<std::unique_ptr<RankWatch>> MakeRanks(uint32_t count) {
  std::vector<FrameSocket> at_hub;
  std::vector<std::unique_ptr<RankWatch>> ranks(count);
  for (uint32_t rank = 1; rank < count; ++rank) {
    Pair pair = Connected();
    at_hub.emplace_back(std::move(pair.first));
    std::vector<FrameSocket> own;
    own.emplace_back(std::move(pair.second));
    ranks[rank] = std::make_unique<RankWatch>(OptionsOf(rank, count), std::move(own));
  }
  ranks[0] = std::make_unique<RankWatch>(OptionsOf(0, count), std::move(at_hub));
  return ranks;
}

// Runs `body` as every rank on a thread of its own.
template <typename Body>
void AsEach(std::vector<std::unique_ptr<RankWatch>>& ranks, Body body) {
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] { body(rank, *ranks[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(RankWatch, ExchangesAndLeaves) {
  auto ranks = MakeRanks(5);
  AsEach(ranks, [](uint32_t rank, RankWatch& watch) {
    for (int turn = 0; turn < 100; ++turn) {
      const auto all = watch.Exchange("turn", fmt::format("{}.{}", turn, rank), kLong);
      ASSERT_TRUE(all.ok()) << all.status().message();
      for (uint32_t from = 0; from < 5; ++from) {
        EXPECT_EQ(fmt::format("{}.{}", turn, from), all.value()[from]);
      }
    }
    EXPECT_TRUE(watch.Leave(kLong).ok());
  });
  // Their ends, in any order, are no failure.
  ranks[2].reset();
  ranks[0].reset();
  EXPECT_FALSE(ranks[1]->Failure(milliseconds(100)).has_value());
}

TEST(RankWatch, AnEndWithoutFarewellReachesAll) {
  for (const uint32_t dead : {0u, 2u}) {
    auto ranks = MakeRanks(4);
    ranks[dead].reset();
    for (uint32_t rank = 0; rank < 4; ++rank) {
      if (rank == dead) continue;
      const auto failure = ranks[rank]->Failure(kLong);
      ASSERT_TRUE(failure.has_value());
      EXPECT_TRUE(
          failure->message().starts_with(fmt::format("rank {} (t) ended without a word", dead)))
          << failure->message();
    }
  }
}

TEST(RankWatch, OfManyFailuresOneCounts) {
  for (int turn = 0; turn < 20; ++turn) {
    auto ranks = MakeRanks(4);
    std::atomic<int> told{0};
    for (auto& rank : ranks) {
      rank->AddListener(RankWatch::Whose::kAny, [&](const Status&) { ++told; });
    }
    AsEach(ranks, [](uint32_t rank, RankWatch& watch) {
      watch.Fail(Status::Failed(fmt::format("cause {}", rank)));
      const auto failure = watch.Failure(kLong);
      ASSERT_TRUE(failure.has_value());
      EXPECT_NE(std::string::npos, failure->message().find("cause ")) << failure->message();
    });
    ranks.clear();
    EXPECT_EQ(4, told.load());
  }
}

TEST(RankWatch, ARemovedListenerIsNotCalled) {
  for (int turn = 0; turn < 50; ++turn) {
    auto ranks = MakeRanks(2);
    auto flag = std::make_unique<std::atomic<int>>(0);
    const uint64_t number = ranks[1]->AddListener(RankWatch::Whose::kOthers,
                                                  [to = flag.get()](const Status&) { ++*to; });
    std::thread failing([&] { ranks[0]->Fail(Status::Failed("cause")); });
    if (turn % 2 == 0) std::this_thread::yield();
    ranks[1]->RemoveListener(number);
    flag.reset();  // a call from here on would be seen by the sanitizers
    failing.join();
    EXPECT_TRUE(ranks[1]->Failure(kLong).has_value());
  }
}

TEST(RankWatch, AListenerThatComesLateIsCalledAtOnce) {
  auto ranks = MakeRanks(2);
  ranks[0]->Fail(Status::Failed("cause"));
  ASSERT_TRUE(ranks[1]->Failure(kLong).has_value());
  std::string heard;
  ranks[1]->AddListener(RankWatch::Whose::kOthers,
                        [&](const Status& status) { heard = status.message(); });
  EXPECT_EQ("rank 0 (t) failed: cause", heard);
  int own = 0;
  ranks[0]->AddListener(RankWatch::Whose::kOthers, [&](const Status&) { ++own; });
  EXPECT_EQ(0, own);
}

TEST(RankWatch, GarbageOnTheLineEndsIt) {
  for (const std::string& garbage :
       {std::string(64, '\xff'), std::string("\5\0\0\0abcde", 9), std::string("\0\0\0\0", 4)}) {
    Pair pair = Connected();
    std::vector<FrameSocket> sockets;
    sockets.emplace_back(std::move(pair.first));
    RankWatch watch(OptionsOf(0, 2), std::move(sockets));
    ASSERT_EQ(static_cast<ssize_t>(garbage.size()),
              ::send(pair.second.get(), garbage.data(), garbage.size(), 0));
    const auto failure = watch.Failure(kLong);
    ASSERT_TRUE(failure.has_value());
    EXPECT_TRUE(failure->message().starts_with("rank 1 (t) ended without a word"));
  }
}

// As when a rank fails right after its welcome: the welcome's reader takes one message, the watch
// has to find the other.
TEST(RankWatch, WhatCameWithTheWelcomeIsNotLost) {
  Pair pair = Connected();
  {
    FrameSocket hub(std::move(pair.first));
    hub.Queue(Frame{99, {"welcome"}});
    hub.Queue(Frame{4, {"0", "rank 0 (t) failed: no room"}});  // a failure
    ASSERT_TRUE(hub.Flush());
  }
  std::vector<FrameSocket> peers;
  peers.emplace_back(std::move(pair.second));
  EXPECT_FALSE(peers[0].Receive());
  const std::optional<Frame> welcome = peers[0].Take();
  ASSERT_TRUE(welcome.has_value());
  EXPECT_EQ("welcome", welcome->texts.at(0));
  RankWatch watch(OptionsOf(1, 2), std::move(peers));
  EXPECT_EQ("rank 0 (t) failed: no room",
            watch.Exchange("the first step", "", kLong).status().message());
}

TEST(RankWatch, WhoDoesNotComeIsNamed) {
  auto ranks = MakeRanks(3);
  std::thread other(
      [&] { EXPECT_FALSE(ranks[1]->Exchange("the seed", "1", milliseconds(400)).ok()); });
  const auto all = ranks[0]->Exchange("the seed", "1", milliseconds(200));
  EXPECT_EQ("rank 2 (t) did not come to \"the seed\" within 0.2 s", all.status().message());
  other.join();
}

}  // namespace
}  // namespace marea
