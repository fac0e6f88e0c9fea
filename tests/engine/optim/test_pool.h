// A pool of workers for a test.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "engine/optim/worker_pool.h"

namespace marea {

inline std::unique_ptr<WorkerPool> MakePool(int threads) {
  auto pool = WorkerPool::Create(threads, "test");
  EXPECT_TRUE(pool.ok()) << pool.status().message();
  return std::move(pool).value();
}

}  // namespace marea
