// What an all-gather among ranks gives: the part of `marea bench --all` that takes several
// processes. Each rank of `marea launch --gpus N -- bench --all ...` calls it; GPUs gather by NCCL,
// the CPU by Gloo, as in training.
//
// Method: every rank's part lies in its place of one buffer in VRAM (in RAM on the CPU), as a
// gathered group does; after a first gather, whose bytes are compared, rank 0 says how often to
// repeat it, four at a time. The figure is rank 0's median.
//
// Thread rule: the command's thread, once in a process. Blocks for about the given seconds.
#pragma once

#include "engine/comm/world.h"
#include "io/status.h"
#include "src/bench/memory_speed.h"

namespace marea {

// Bytes that arrive at each rank, a second. REQUIRES: world.size > 1. Besides what RankGroup::Join
// and the communicators return: InvalidArgument where some ranks have a GPU and others none,
// Corrupt where other bytes arrive than were sent.
Result<double> MeasureGather(const World& world, const SpeedOptions& options);

}  // namespace marea
