// What the collectives compute, bit for bit, between real processes.

#include "engine/comm/communicator.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <thread>
#include <vector>

#include "engine/comm/ordered_reduce.h"
#include "tests/engine/comm/rank_processes.h"

namespace marea {
namespace {

const std::vector<uint32_t> kWorldSizes = {1, 2, 3, 4, 8};

void ExpectAllWell(uint32_t size, const RankBody& body) {
  const std::vector<std::string> texts = RunRanks(size, body);
  for (uint32_t rank = 0; rank < size; ++rank) {
    EXPECT_EQ("", texts[rank]) << "rank " << rank << " of " << size;
  }
}

// Values of both signs and of very different size, so that another order of adding gives other
// bits.
float ValueOf(uint32_t rank, size_t element) {
  uint32_t bits = static_cast<uint32_t>(element) * 2654435761u + rank * 2246822519u;
  bits ^= bits >> 15;
  constexpr uint32_t kSignAndFraction = 0x807fffff;
  const uint32_t exponent = 124 + (bits >> 23) % 6;
  return std::bit_cast<float>((bits & kSignAndFraction) | (exponent << 23));
}

std::string CheckSum(const std::vector<float>& whole, uint32_t rank, uint32_t ranks) {
  const size_t part = whole.size() / ranks;
  for (size_t i = rank * part; i < (rank + 1) * part; ++i) {
    float sum = ValueOf(0, i);
    for (uint32_t from = 1; from < ranks; ++from) sum += ValueOf(from, i);
    if (std::bit_cast<uint32_t>(sum) != std::bit_cast<uint32_t>(whole[i])) {
      return fmt::format("element {} of {}: {}, not {}", i, whole.size(), whole[i], sum);
    }
  }
  return "";
}

std::string ReduceOnce(Communicator& talk, const World& world, size_t part) {
  std::vector<float> whole(part * world.size);
  for (size_t i = 0; i < whole.size(); ++i) whole[i] = ValueOf(world.rank, i);
  const Status status = talk.ReduceScatter(whole);
  return status.ok() ? CheckSum(whole, world.rank, world.size) : status.message();
}

std::string GatherOnce(Communicator& talk, const World& world, size_t bytes, bool in_place) {
  std::vector<std::byte> whole(bytes * world.size);
  std::vector<std::byte> apart(in_place ? 0 : bytes);
  const std::span<std::byte> shard =
      in_place ? std::span(whole).subspan(world.rank * bytes, bytes) : std::span(apart);
  const auto value = [](uint32_t rank, size_t i) {
    return static_cast<std::byte>(rank * 61 + i * 7 + (i >> 9));
  };
  for (size_t i = 0; i < bytes; ++i) shard[i] = value(world.rank, i);
  const Status status = talk.AllGather(shard, whole);
  if (!status.ok()) return status.message();
  for (size_t i = 0; i < whole.size(); ++i) {
    if (whole[i] != value(static_cast<uint32_t>(i / bytes), i % bytes)) {
      return fmt::format("byte {} of {} is wrong", i, whole.size());
    }
  }
  return "";
}

TEST(Communicator, GathersShardsByRank) {
  for (const uint32_t size : kWorldSizes) {
    ExpectAllWell(size, [](RankGroup& group) -> std::string {
      auto talk = MakeGlooCommunicator(group, "weights");
      if (!talk.ok()) return talk.status().message();
      for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4096}, size_t{1'000'003}}) {
        for (const bool in_place : {false, true}) {
          const std::string text = GatherOnce(*talk.value(), group.world(), bytes, in_place);
          if (!text.empty()) return text;
        }
      }
      return "";
    });
  }
}

TEST(Communicator, AddsInRankOrderWhateverThePieces) {
  for (const uint32_t size : kWorldSizes) {
    ExpectAllWell(size, [](RankGroup& group) -> std::string {
      auto talk = MakeGlooCommunicator(group, "gradients");
      if (!talk.ok()) return talk.status().message();
      const size_t piece = ReducePieceElements(group.world().size, kGlooScratchBytesMax);
      for (const size_t part : {size_t{0}, size_t{1}, size_t{5000}, 2 * piece + 17}) {
        const std::string text = ReduceOnce(*talk.value(), group.world(), part);
        if (!text.empty()) return text;
      }
      return "";
    });
  }
}

TEST(Communicator, AnotherOrderWouldGiveOtherBits) {
  size_t different = 0;
  for (size_t i = 0; i < 1000; ++i) {
    const float forward = (ValueOf(0, i) + ValueOf(1, i)) + ValueOf(2, i);
    const float backward = (ValueOf(2, i) + ValueOf(1, i)) + ValueOf(0, i);
    different += forward != backward ? 1 : 0;
  }
  EXPECT_GT(different, 200u);
}

TEST(Communicator, SendsAroundTheRing) {
  for (const uint32_t size : {2u, 3u}) {
    ExpectAllWell(size, [](RankGroup& group) -> std::string {
      auto talk = MakeGlooCommunicator(group, "ring");
      if (!talk.ok()) return talk.status().message();
      const uint32_t rank = group.world().rank;
      const uint32_t ranks = group.world().size;
      std::vector<std::byte> token(300'000, static_cast<std::byte>(1));
      const Status in = rank == 0 ? Status::Ok() : talk.value()->Receive(token, rank - 1);
      if (!in.ok()) return in.message();
      for (std::byte& value : token) value = static_cast<std::byte>(static_cast<int>(value) + 1);
      Status out = talk.value()->Send(token, (rank + 1) % ranks);
      if (out.ok() && rank == 0) out = talk.value()->Receive(token, ranks - 1);
      if (!out.ok()) return out.message();
      if (rank != 0) return "";
      for (const std::byte value : token) {
        if (static_cast<uint32_t>(value) != ranks + 1) return "the token is wrong";
      }
      return "";
    });
  }
}

TEST(Communicator, SeveralWorkBesideEachOther) {
  ExpectAllWell(3, [](RankGroup& group) -> std::string {
    auto weights = MakeGlooCommunicator(group, "weights");
    auto gradients = MakeGlooCommunicator(group, "gradients");
    if (!weights.ok() || !gradients.ok()) return "no communicator";
    std::string first;
    std::thread other([&] {
      for (int turn = 0; turn < 20 && first.empty(); ++turn) {
        first = GatherOnce(*weights.value(), group.world(), 200'000, true);
      }
    });
    std::string second;
    for (int turn = 0; turn < 20 && second.empty(); ++turn) {
      second = ReduceOnce(*gradients.value(), group.world(), 50'000);
    }
    other.join();
    return first + second;
  });
}

// Takes 11 GB of RAM: run it by hand, with --gtest_also_run_disabled_tests.
TEST(Communicator, DISABLED_MovesMoreThanFourGigabytes) {
  ExpectAllWell(2, [](RankGroup& group) -> std::string {
    auto talk = MakeGlooCommunicator(group, "large");
    if (!talk.ok()) return talk.status().message();
    const std::string text = ReduceOnce(*talk.value(), group.world(), size_t{640} << 20);
    return text.empty() ? GatherOnce(*talk.value(), group.world(), (size_t{5} << 29) + 7, true)
                        : text;
  });
}

TEST(Communicator, RefusesSpansThatDoNotFit) {
  ExpectAllWell(2, [](RankGroup& group) -> std::string {
    auto talk = MakeGlooCommunicator(group, "t");
    if (!talk.ok()) return talk.status().message();
    std::vector<std::byte> bytes(7);
    std::vector<float> floats(5);
    const auto refused = [](const Status& status) {
      return status.code() == ErrorCode::kInvalidArgument;
    };
    if (!refused(talk.value()->AllGather(std::span(bytes).first(3), bytes))) return "gathered";
    if (!refused(talk.value()->ReduceScatter(floats))) return "reduced";
    if (!refused(talk.value()->Send(bytes, group.world().rank))) return "sent to itself";
    if (!refused(talk.value()->Receive(bytes, 2))) return "received from nobody";
    if (!refused(MakeGlooCommunicator(group, "t").status())) return "made twice";
    return "";
  });
}

TEST(Communicator, FindsCallsThatDoNotMatch) {
  ExpectAllWell(3, [](RankGroup& group) -> std::string {
    auto first = MakeGlooCommunicator(group, "sizes");
    auto second = MakeGlooCommunicator(group, "kinds");
    if (!first.ok() || !second.ok()) return "no communicator";
    const uint32_t rank = group.world().rank;
    std::vector<float> whole(rank == 2 ? 600 : 300);
    const Status sizes = first.value()->ReduceScatter(whole);
    const std::string expected =
        rank == 2 ? fmt::format(
                        "reduce-scatter over Gloo (sizes): {} sends a reduce-scatter of "
                        "1200 bytes where rank 2 expects a reduce-scatter of 2400 bytes",
                        group.title(0))
                  : fmt::format(
                        "reduce-scatter over Gloo (sizes): {} sends a reduce-scatter of "
                        "2400 bytes where rank {} expects a reduce-scatter of 1200 bytes",
                        group.title(2), rank);
    if (sizes.message() != expected) return "sizes: " + sizes.message();
    whole.resize(300);
    const auto bytes = std::as_writable_bytes(std::span(whole));
    const Status kinds = rank == 0 ? second.value()->AllGather(bytes.first(400), bytes)
                                   : second.value()->ReduceScatter(whole);
    return kinds.ok() ? "different kinds were not found" : "";
  });
}

TEST(Communicator, AMessageThatIsTooLongIsToldToBoth) {
  const auto texts = RunRanks(2, [](RankGroup& group) -> std::string {
    auto talk = MakeGlooCommunicator(group, "messages");
    if (!talk.ok()) return talk.status().message();
    std::vector<std::byte> bytes(1'000'000);
    if (group.world().rank == 0) return talk.value()->Send(bytes, 1).message();
    const Status status = talk.value()->Receive(std::span(bytes).first(4), 0);
    group.Fail(status);
    return status.message();
  });
  const std::string cause =
      " sends a message of 1000000 bytes where rank 1 expects a message of 4 bytes";
  EXPECT_TRUE(texts[0].starts_with("rank 1 (host ")) << texts[0];
  EXPECT_TRUE(texts[0].ends_with(cause)) << texts[0];
  EXPECT_TRUE(texts[1].starts_with("receive over Gloo (messages): rank 0 (host ")) << texts[1];
  EXPECT_TRUE(texts[1].ends_with(cause)) << texts[1];
}

TEST(Communicator, ScratchStaysWithinItsBound) {
  EXPECT_EQ(0u, GlooScratchBytes(1));
  for (const uint32_t ranks : {2u, 3u, 4u, 7u, 8u, 64u, 1000u}) {
    EXPECT_LE(GlooScratchBytes(ranks), kGlooScratchBytesMax) << ranks;
    EXPECT_GE(GlooScratchBytes(ranks), kGlooScratchBytesMax * 9 / 10) << ranks;
  }
}

}  // namespace
}  // namespace marea
