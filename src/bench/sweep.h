// Which block size and depth to use: the grid that a sweep measures, and the choice from it.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/bench/bench_session.h"

namespace marea {

// Block sizes from 256 KiB to 4 MiB and depths from 4 to 64, those of which keep at most a quarter
// of a file of `file_bytes` in flight.
std::vector<BenchShape> SweepGrid(uint64_t file_bytes);

// One shape's speed in each workload that was swept, in the same order for all.
struct SweepPoint {
  BenchShape shape;
  std::vector<double> bytes_per_second;
};

// The shape that keeps the least memory in flight among those whose slowest workload, as a share of
// the fastest that any shape gave for that workload, is within 3% of the best such share. Of equal
// memory, the larger block: fewer requests cost less processor time. REQUIRES: not empty.
SweepPoint BestPoint(std::span<const SweepPoint> points);

// The `aio` section of a DeepSpeed file; marea reads block_size and queue_depth of it.
std::string AioSection(const BenchShape& shape);

}  // namespace marea
