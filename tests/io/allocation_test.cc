// In steady state a device allocates nothing: operator new is counted while it works.
#include <gtest/gtest.h>

#include <vector>

#include "io/units.h"
#include "tests/io/allocation_count.h"
#include "tests/io/device_harness.h"

namespace marea {
namespace {

class AllocationTest : public testing::TestWithParam<HarnessKind> {};

TEST_P(AllocationTest, NoneInSteadyState) {
  std::string why;
  const auto harness = MakeHarness(
      GetParam(), {.queue_depth = 4, .request_bytes = 64 * kKiB, .capacity = 16, .mode = {}}, &why);
  if (harness == nullptr) GTEST_SKIP() << why;
  BlockDevice& device = harness->device();
  std::vector<IoRequest> requests;
  for (uint64_t i = 0; i < 16; ++i) {
    requests.push_back({i % 2 == 0 ? IoDirection::kRead : IoDirection::kWrite, 0, i * kMiB,
                        harness->memory().data() + i * kMiB, 128 * kKiB, i});
  }
  std::vector<IoCompletion> completions(16, IoCompletion{0, Status::Ok()});
  uint64_t before = 0;
  for (int turn = 0; turn < 20; ++turn) {
    if (turn == 2) before = allocation_count;  // the first ones may set things up
    ASSERT_TRUE(device.Submit(requests).ok());
    size_t done = 0;
    while (done < requests.size()) done += device.Reap(completions, ReapWait::kUntilOne);
  }
  EXPECT_GT(before, 0u) << "nothing is counted";
  EXPECT_EQ(allocation_count - before, 0u);
}

INSTANTIATE_TEST_SUITE_P(RealDevices, AllocationTest,
                         testing::Values(HarnessKind::kUringRegistered, HarnessKind::kUring,
                                         HarnessKind::kPosix),
                         [](const auto& info) { return HarnessName(info.param); });

}  // namespace
}  // namespace marea
