// How ranks meet and what keeps them from it, between real processes.

#include "engine/comm/rank_group.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/network.h"
#include "tests/engine/comm/rank_processes.h"

namespace marea {
namespace {

using std::chrono::milliseconds;

RankGroupOptions Within(milliseconds timeout) {
  RankGroupOptions options;
  options.timeout = timeout;
  return options;
}

std::string JoinOnly(const World& world, milliseconds timeout) {
  auto group = RankGroup::Join(world, Within(timeout));
  if (!group.ok()) return group.status().message();
  const Status left = group.value()->Leave();
  return left.ok() ? "joined" : left.message();
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(RankGroup, ExchangesTextsByRank) {
  for (const uint32_t size : {1u, 2u, 3u, 8u}) {
    const auto texts = RunRanks(size, [](RankGroup& group) -> std::string {
      for (int turn = 0; turn < 50; ++turn) {
        auto all = group.Exchange(fmt::format("turn {}", turn),
                                  fmt::format("{} of {}", turn, group.world().rank));
        if (!all.ok()) return all.status().message();
        for (uint32_t rank = 0; rank < group.world().size; ++rank) {
          if (all.value()[rank] != fmt::format("{} of {}", turn, rank)) return all.value()[rank];
        }
      }
      const std::string large(500'000, 'x');
      auto all = group.Exchange("large", large);
      if (!all.ok()) return all.status().message();
      return all.value().back() == large ? group.Barrier("end").message() : "cut";
    });
    for (const std::string& text : texts) EXPECT_EQ("", text) << size;
  }
}

TEST(RankGroup, NamesTheFirstDifferenceToEveryRank) {
  const auto texts = RunRanks(3, [](RankGroup& group) -> std::string {
    const bool other = group.world().rank == 1;
    const Status first = group.Agree({{"model", "llama"}, {"seed", "7"}});
    if (!first.ok()) return "equal facts differ: " + first.message();
    const Status status =
        group.Agree({{"model", "llama"}, {"seed", other ? "8" : "7"}, {"data", other ? "b" : "a"}});
    if (status.code() != ErrorCode::kInvalidArgument) return "no difference found";
    const std::string expected =
        group.title(1) +
        " was started with another seed than rank 0: 8, not 7; start all ranks with the same "
        "command";
    return status.message() == expected ? "" : status.message();
  });
  for (const std::string& text : texts) EXPECT_EQ("", text);
}

TEST(RankGroup, RanksAtDifferentPlacesStop) {
  const auto texts = RunRanks(3, [](RankGroup& group) -> std::string {
    const bool other = group.world().rank == 2;
    return group.Barrier(other ? "the checkpoint" : "the first step").message();
  });
  for (const std::string& text : texts) {
    EXPECT_TRUE(Contains(text, "rank 2 (host ")) << text;
    EXPECT_TRUE(Contains(text, "is at \"the checkpoint\" while rank 0 is at \"the first step\""))
        << text;
  }
}

TEST(RankGroup, OneThatEndsEarlyStopsTheOthers) {
  const auto texts = RunRanks(3, [](RankGroup& group) -> std::string {
    return group.world().rank == 1 ? "" : group.Barrier("the first step").message();
  });
  for (const std::string& text : texts) {
    EXPECT_TRUE(Contains(text, "came to its end while")) << text;
  }
}

TEST(RankGroup, NamesTheRanksThatDoNotCome) {
  RankProcesses processes;
  const uint16_t port = FreePort();
  for (const uint32_t rank : {0u, 1u}) {
    processes.Start([=] { return JoinOnly(LocalWorld(rank, 4, port), milliseconds(2000)); });
  }
  for (const size_t i : {0, 1}) {
    const RankProcesses::End end = processes.Wait(i);
    EXPECT_EQ(fmt::format("ranks 2 and 3 of 4 did not come to 127.0.0.1:{} within 2 s", port),
              end.text);
    EXPECT_LT(end.seconds, 6);
  }
}

TEST(RankGroup, SaysWhenRankZeroIsMissing) {
  RankProcesses processes;
  const uint16_t port = FreePort();
  processes.Start([=] { return JoinOnly(LocalWorld(1, 2, port), milliseconds(1500)); });
  const RankProcesses::End end = processes.Wait(0);
  EXPECT_TRUE(
      Contains(end.text, fmt::format("rank 1 met nobody at 127.0.0.1:{} within 1.5 s", port)))
      << end.text;
  EXPECT_LT(end.seconds, 5);
}

TEST(RankGroup, SaysWhenTheNameIsNotKnown) {
  World world = LocalWorld(1, 2, FreePort());
  world.master_address = "no-such-host.invalid";
  RankProcesses processes;
  processes.Start([=] { return JoinOnly(world, milliseconds(1000)); });
  const RankProcesses::End end = processes.Wait(0);
  EXPECT_TRUE(Contains(end.text, "the name no-such-host.invalid is not known")) << end.text;
}

TEST(RankGroup, SaysWhenAStrangerHoldsThePort) {
  // It takes connections and never says a word.
  auto stranger = ListenOn(0);
  ASSERT_TRUE(stranger.ok());
  const uint16_t port = stranger.value().port;
  RankProcesses processes;
  for (const uint32_t rank : {0u, 1u}) {
    processes.Start([=] { return JoinOnly(LocalWorld(rank, 2, port), milliseconds(1500)); });
  }
  const RankProcesses::End first = processes.Wait(0);
  EXPECT_TRUE(Contains(first.text,
                       fmt::format("port {} of {} is taken by another program", port, HostName())))
      << first.text;
  const RankProcesses::End second = processes.Wait(1);
  EXPECT_TRUE(Contains(second.text, "rank 1 is not answered by what takes connections at"))
      << second.text;
  EXPECT_LT(second.seconds, 5);
}

TEST(RankGroup, SaysWhenARankIsStartedTwice) {
  for (const uint32_t twice : {0u, 1u}) {
    RankProcesses processes;
    const uint16_t port = FreePort();
    // Rank 2 never comes, so the meeting is still open.
    for (const uint32_t rank : {0u, 1u, twice}) {
      processes.Start([=] { return JoinOnly(LocalWorld(rank, 3, port), milliseconds(15'000)); });
      if (rank == twice) std::this_thread::sleep_for(milliseconds(300));
    }
    const std::string who = fmt::format("rank {} was started twice: by process ", twice);
    for (size_t i = 0; i < 3; ++i) {
      const RankProcesses::End end = processes.Wait(i);
      EXPECT_TRUE(Contains(end.text, who)) << end.text;
      EXPECT_TRUE(Contains(end.text, fmt::format("process {}", processes.process(2)))) << end.text;
      EXPECT_TRUE(Contains(end.text, fmt::format("process {}", processes.process(twice))))
          << end.text;
      EXPECT_LT(end.seconds, 10);
    }
  }
}

TEST(RankGroup, SaysWhenWorldSizesDiffer) {
  RankProcesses processes;
  const uint16_t port = FreePort();
  processes.Start([=] { return JoinOnly(LocalWorld(0, 2, port), milliseconds(15'000)); });
  processes.Start([=] { return JoinOnly(LocalWorld(1, 3, port), milliseconds(15'000)); });
  for (const size_t i : {0, 1}) {
    const RankProcesses::End end = processes.Wait(i);
    EXPECT_TRUE(Contains(end.text, "was started with world size 3, rank 0 with 2")) << end.text;
    EXPECT_LT(end.seconds, 10);
  }
}

TEST(RankGroup, RefusesATextThatIsTooLarge) {
  const auto texts = RunRanks(2, [](RankGroup& group) -> std::string {
    return group.Exchange("large", std::string(40'000'000, 'x')).status().message();
  });
  for (const std::string& text : texts) {
    EXPECT_EQ("large: 40000000 bytes are too many to exchange", text);
  }
}

TEST(RankGroup, TakesTheInterfaceThatIsNamed) {
  for (const char* name : {"lo", "no-such-interface"}) {
    RankProcesses processes;
    const uint16_t port = FreePort();
    for (const uint32_t rank : {0u, 1u}) {
      processes.Start([=] {
        ::setenv("GLOO_SOCKET_IFNAME", name, 1);
        return JoinOnly(LocalWorld(rank, 2, port), milliseconds(10'000));
      });
    }
    for (const size_t i : {0, 1}) {
      const std::string text = processes.Wait(i).text;
      if (std::string(name) == "lo") {
        EXPECT_EQ("joined", text);
      } else {
        EXPECT_TRUE(text.starts_with("GLOO_SOCKET_IFNAME=no-such-interface: no interface")) << text;
      }
    }
  }
}

TEST(RankGroup, MeetsByNameAndOverIpv6) {
  for (const char* address : {"localhost", "::1"}) {
    RankProcesses processes;
    const uint16_t port = FreePort();
    for (const uint32_t rank : {0u, 1u}) {
      World world = LocalWorld(rank, 2, port);
      world.master_address = address;
      processes.Start([=] { return JoinOnly(world, milliseconds(10'000)); });
    }
    for (const size_t i : {0, 1}) EXPECT_EQ("joined", processes.Wait(i).text) << address;
  }
}

}  // namespace
}  // namespace marea
