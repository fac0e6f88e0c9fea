#include "engine/optim/worker_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/engine/optim/test_pool.h"

namespace marea {
namespace {

TEST(WorkerPoolTest, EveryElementOnceInWholePieces) {
  for (const int threads : {1, 2, 7}) {
    const auto pool = MakePool(threads);
    EXPECT_EQ(pool->threads(), threads);
    for (const size_t elements : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{1000}}) {
      for (const size_t grain : {size_t{1}, size_t{64}, size_t{5000}}) {
        constexpr size_t kBegin = 17;
        std::vector<int> visits(kBegin + elements, 0);  // plain ints: a race is a tsan report
        pool->ParallelFor(kBegin, kBegin + elements, grain, [&](size_t first, size_t last) {
          EXPECT_LT(first, last);
          EXPECT_EQ((first - kBegin) % grain, 0u);
          EXPECT_TRUE(last - first == grain || last == kBegin + elements);
          for (size_t i = first; i < last; ++i) ++visits[i];
        });
        EXPECT_EQ(std::count(visits.begin(), visits.begin() + kBegin, 0), kBegin);
        EXPECT_EQ(std::count(visits.begin() + kBegin, visits.end(), 1), elements);
      }
    }
  }
}

TEST(WorkerPoolTest, ARangeNearTheEndOfSizeT) {
  const auto pool = MakePool(2);
  const size_t end = SIZE_MAX;
  std::mutex mutex;
  size_t covered = 0;
  pool->ParallelFor(end - 10, end, 4, [&](size_t first, size_t last) {
    const std::lock_guard lock(mutex);
    covered += last - first;
  });
  EXPECT_EQ(covered, 10u);
}

TEST(WorkerPoolTest, CallersTakeTurns) {
  const auto pool = MakePool(3);
  constexpr int kCallers = 4;
  constexpr int kRounds = 200;
  std::vector<std::vector<int>> counts(kCallers, std::vector<int>(100, 0));
  std::vector<std::thread> callers;
  for (int c = 0; c < kCallers; ++c) {
    callers.emplace_back([&, c] {
      for (int round = 0; round < kRounds; ++round) {
        pool->ParallelFor(0, 100, 9, [&](size_t first, size_t last) {
          for (size_t i = first; i < last; ++i) ++counts[c][i];
        });
        ASSERT_EQ(counts[c][round % 100], round + 1);  // visible on return
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const auto& count : counts) {
    EXPECT_EQ(std::count(count.begin(), count.end(), kRounds), 100);
  }
}

TEST(WorkerPoolTest, ThreadsAreNamedAndNotTheCaller) {
  auto pool = WorkerPool::Create(2, "a-rather-long-name");
  ASSERT_TRUE(pool.ok());
  std::mutex mutex;
  std::set<std::string> names;
  pool.value()->ParallelFor(0, 50, 1, [&](size_t, size_t) {
    char name[16];
    ASSERT_EQ(pthread_getname_np(pthread_self(), name, sizeof(name)), 0);
    const std::lock_guard lock(mutex);
    names.insert(name);
  });
  EXPECT_EQ(*names.begin(), "a-rather-long-n");

  const auto short_pool = MakePool(1);
  short_pool->ParallelFor(0, 1, 1, [&](size_t, size_t) {
    char name[16];
    ASSERT_EQ(pthread_getname_np(pthread_self(), name, sizeof(name)), 0);
    EXPECT_STREQ(name, "test/0");
  });
}

TEST(WorkerPoolTest, RefusesImpossibleSizes) {
  for (const int threads : {0, -1, WorkerPool::kThreadsMax + 1}) {
    const auto pool = WorkerPool::Create(threads, "pool");
    ASSERT_FALSE(pool.ok());
    EXPECT_EQ(pool.status().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(pool.status().message().find(std::to_string(threads)), std::string::npos);
  }
}

TEST(WorkerPoolDeathTest, ACallFromInsideIsCaught) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const auto pool = MakePool(1);
        pool->ParallelFor(
            0, 1, 1, [&](size_t, size_t) { pool->ParallelFor(0, 1, 1, [](size_t, size_t) {}); });
      },
      "from a pool's own thread");
}

}  // namespace
}  // namespace marea
