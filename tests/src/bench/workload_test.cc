// What a workload reads and writes, whatever the order in which transfers end.
#include "src/bench/workload.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

#include "io/units.h"

namespace marea {
namespace {

struct Trace {
  std::vector<BenchTransfer> begun;
  std::string wrong;
};

// Keeps up to `depth` transfers in flight and ends them in random order, until the workload ends.
Trace Drive(Workload& workload, size_t depth, uint64_t seed, size_t transfers_max = 100000) {
  Trace trace;
  std::mt19937_64 random(seed);
  std::vector<BenchTransfer> flying;
  while (trace.begun.size() < transfers_max) {
    while (flying.size() < depth) {
      const std::optional<BenchTransfer> next = workload.Next();
      if (!next.has_value()) break;
      for (const BenchTransfer& other : flying) {
        const bool apart = next->offset + next->bytes <= other.offset ||
                           other.offset + other.bytes <= next->offset;
        if (!apart) trace.wrong = "two transfers of one block are in flight";
      }
      trace.begun.push_back(*next);
      flying.push_back(*next);
    }
    if (flying.empty()) {
      if (!workload.ended()) trace.wrong = "nothing in flight, and not ended";
      return trace;
    }
    const size_t at = random() % flying.size();
    workload.Done(flying[at]);
    flying.erase(flying.begin() + static_cast<ptrdiff_t>(at));
  }
  return trace;
}

constexpr uint64_t kFile = 37 * kMiB + kPageBytes;  // the last block is one page

std::unique_ptr<Workload> Make(WorkloadKind kind, uint64_t seed = 1) {
  return MakeRounds(kind, {.file = 2, .file_bytes = kFile, .block_bytes = kMiB, .seed = seed});
}

TEST(WorkloadTest, ARoundCoversTheFileOnceToItsLastByte) {
  for (const WorkloadKind kind :
       {WorkloadKind::kRead, WorkloadKind::kWrite, WorkloadKind::kRandomRead}) {
    const auto workload = Make(kind);
    workload->EndAfterRound();
    const Trace trace = Drive(*workload, 8, 5);
    EXPECT_EQ(trace.wrong, "") << WorkloadName(kind);
    std::map<uint64_t, uint64_t> ranges;
    uint64_t bytes = 0;
    for (const BenchTransfer& transfer : trace.begun) {
      EXPECT_EQ(transfer.direction,
                kind == WorkloadKind::kWrite ? IoDirection::kWrite : IoDirection::kRead);
      EXPECT_EQ(transfer.file, 2u);
      ranges[transfer.offset] = transfer.bytes;
      bytes += transfer.bytes;
    }
    EXPECT_EQ(bytes, kFile);
    uint64_t at = 0;
    for (const auto& [offset, length] : ranges) {
      EXPECT_EQ(offset, at);
      at += length;
    }
    EXPECT_EQ(at, kFile);
  }
}

TEST(WorkloadTest, SequentialOrderIsByOffsetAndRandomOrderIsNot) {
  const auto sequential = Make(WorkloadKind::kRead);
  const auto random = Make(WorkloadKind::kRandomRead);
  const auto other = Make(WorkloadKind::kRandomRead, 2);
  std::vector<uint64_t> in_order, shuffled, otherwise;
  for (int i = 0; i < 38; ++i) {
    in_order.push_back(sequential->Next()->offset);
    shuffled.push_back(random->Next()->offset);
    otherwise.push_back(other->Next()->offset);
  }
  EXPECT_TRUE(std::is_sorted(in_order.begin(), in_order.end()));
  EXPECT_FALSE(std::is_sorted(shuffled.begin(), shuffled.end()));
  EXPECT_NE(shuffled, otherwise);
}

TEST(WorkloadTest, MixedTakesTurnsAndReadsAndWritesAlike) {
  const auto workload = Make(WorkloadKind::kMixed);
  const Trace trace = Drive(*workload, 8, 9, 1000);
  EXPECT_EQ(trace.wrong, "");
  for (size_t i = 0; i < trace.begun.size(); ++i) {
    EXPECT_EQ(trace.begun[i].direction, i % 2 == 0 ? IoDirection::kRead : IoDirection::kWrite);
  }
  EXPECT_EQ(trace.begun[0].offset, 0u);
  EXPECT_EQ(trace.begun[1].offset, 18 * kMiB);
}

// A file with fewer blocks than the queue is deep: the queue is simply never full.
TEST(WorkloadTest, BlocksInFlightAreWaitedFor) {
  for (const WorkloadKind kind : {WorkloadKind::kRead, WorkloadKind::kWrite, WorkloadKind::kMixed,
                                  WorkloadKind::kRandomRead}) {
    for (uint64_t blocks = 1; blocks < 6; ++blocks) {
      const auto workload = MakeRounds(
          kind, {.file = 0, .file_bytes = blocks * kMiB, .block_bytes = kMiB, .seed = 1});
      EXPECT_EQ(Drive(*workload, 16, blocks, 500).wrong, "") << WorkloadName(kind) << blocks;
      workload->EndAfterRound();
      EXPECT_FALSE(workload->ended() && workload->Next().has_value());
    }
  }
}

TEST(WorkloadTest, NamesAreOursAndFios) {
  EXPECT_EQ(ParseWorkload("--rw", "rw").value(), WorkloadKind::kMixed);
  EXPECT_EQ(ParseWorkload("--rw", "randread").value(), WorkloadKind::kRandomRead);
  EXPECT_EQ(ParseWorkload("--workload", "random_read").value(), WorkloadKind::kRandomRead);
  EXPECT_NE(ParseWorkload("--rw", "trim").status().message().find("--rw trim"), std::string::npos);
  EXPECT_FALSE(ParseWorkload("--rw", "replay").ok());
}

}  // namespace
}  // namespace marea
