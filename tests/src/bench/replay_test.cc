// A plan's transfers as a workload: all of them, in the order and depth of the plan, and never one
// that the plan makes wait for another.
#include "src/bench/replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "io/units.h"
#include "tests/swap/small_plan.h"

namespace marea {
namespace {

struct Played {
  std::vector<BenchTransfer> begun;
  size_t in_flight_max = 0;
  std::string wrong;
};

// Ends transfers in random order; ends the rounds once `transfers` have begun.
Played Play(Workload& workload, size_t transfers, uint64_t seed) {
  Played played;
  std::mt19937_64 random(seed);
  std::vector<BenchTransfer> flying;
  bool told = false;
  while (true) {
    while (const std::optional<BenchTransfer> next = workload.Next()) {
      for (const BenchTransfer& other : flying) {
        const bool apart = next->file != other.file || next->offset + next->bytes <= other.offset ||
                           other.offset + other.bytes <= next->offset;
        const bool both_read =
            next->direction == IoDirection::kRead && other.direction == IoDirection::kRead;
        if (!apart && !both_read) played.wrong = "a race on the file";
      }
      played.begun.push_back(*next);
      flying.push_back(*next);
      played.in_flight_max = std::max(played.in_flight_max, flying.size());
    }
    if (!told && played.begun.size() >= transfers) {
      workload.EndAfterRound();
      told = true;
    }
    if (flying.empty()) {
      if (!workload.ended()) played.wrong = "stuck";
      return played;
    }
    const size_t at = random() % flying.size();
    workload.Done(flying[at]);
    flying.erase(flying.begin() + static_cast<ptrdiff_t>(at));
  }
}

// The transfers of one turn, by lane, as the plan lists them.
std::vector<uint64_t> PlanBytes(const StepPlan& plan, OpKind kind) {
  std::vector<uint64_t> bytes;
  const StepMask mask{.update = true, .train = true, .eval = false, .micro_count = 1};
  for (const Op& op : plan.ops) {
    if (op.kind == kind && Active(op, mask)) {
      bytes.push_back(RoundUp(op.accesses.front().bytes, kPageBytes));
    }
  }
  return bytes;
}

TEST(ReplayTest, PlaysWholeStepsInThePlansOrder) {
  const StepPlan plan = MakeSmallPlan({});
  for (const uint32_t files : {1u, 2u, 3u}) {
    const Result<Replay> replay = Replay::Make(plan, 1, files);
    ASSERT_TRUE(replay.ok()) << replay.status().message();
    const ReplayNeeds& needs = replay.value().needs();
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const auto workload = replay.value().MakeWorkload();
      const Played played = Play(*workload, 40 * seed, seed);
      EXPECT_EQ(played.wrong, "");
      EXPECT_LE(played.in_flight_max, needs.in_flight_max);
      EXPECT_GT(played.in_flight_max, 1u);
      std::map<IoDirection, std::vector<BenchTransfer>> lanes;
      for (const BenchTransfer& transfer : played.begun) {
        lanes[transfer.direction].push_back(transfer);
        EXPECT_LE(transfer.offset + transfer.bytes, needs.file_bytes[transfer.file]);
        EXPECT_LE(transfer.bytes, workload->bytes_max());
      }
      for (const IoDirection direction : {IoDirection::kRead, IoDirection::kWrite}) {
        const bool read = direction == IoDirection::kRead;
        const auto expected = PlanBytes(plan, read ? OpKind::kRead : OpKind::kWrite);
        const std::vector<BenchTransfer>& lane = lanes[direction];
        ASSERT_EQ(lane.size() % expected.size(), 0u);
        uint64_t bytes = 0;
        std::vector<uint64_t> file_bytes(needs.file_bytes.size(), 0);
        for (size_t i = 0; i < lane.size(); ++i) {
          file_bytes[lane[i].file] += lane[i].bytes;
          EXPECT_EQ(lane[i].bytes, expected[i % expected.size()]);
          // The same place in every step.
          EXPECT_EQ(lane[i].offset, lane[i % expected.size()].offset);
          bytes += lane[i].bytes;
        }
        EXPECT_EQ(bytes,
                  (read ? needs.read_bytes : needs.write_bytes) * (lane.size() / expected.size()));
        for (size_t file = 0; !read && file < file_bytes.size(); ++file) {
          EXPECT_EQ(file_bytes[file],
                    needs.file_write_bytes[file] * (lane.size() / expected.size()));
        }
      }
    }
  }
}

TEST(ReplayTest, HomesAreDealtOutEvenly) {
  const StepPlan plan = MakeSmallPlan({.group_count = 8, .chunk_count = 4});
  const ReplayNeeds one = Replay::Make(plan, 1, 1).value().needs();
  const ReplayNeeds four = Replay::Make(plan, 1, 4).value().needs();
  uint64_t sum = 0;
  for (const uint64_t bytes : four.file_bytes) {
    EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(one.file_bytes[0]) / 4, 16384);
    sum += bytes;
  }
  EXPECT_EQ(sum, one.file_bytes[0]);
}

TEST(ReplayTest, APlanWithoutNvmeIsRefused) {
  const StepPlan plan =
      MakeSmallPlan({.weight = Space::kRam, .moment = Space::kRam, .gradient = Space::kRam});
  const Result<Replay> replay = Replay::Make(plan, 1, 1);
  ASSERT_FALSE(replay.ok());
  EXPECT_EQ(replay.status().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace marea
