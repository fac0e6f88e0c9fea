// What every op of a plan does to every chunk: the plan's accesses, translated once.
//
// A shard is cut into rows at the ends of every access to it, so that an access always covers whole
// rows: with NVMe homes or chunked updates a row is a chunk, otherwise it may be the whole shard.
// Pure functions of the plan; plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "swap/chunk_table.h"
#include "swap/residency.h"
#include "swap/step_plan.h"

namespace marea {

// What an op does to one row in one place.
enum class TouchKind : uint8_t {
  kFetch,        // fills a copy from the home
  kSpread,       // fills a copy from another copy
  kWriteBack,    // brings a copy home
  kUseHome,      // reads the home
  kUseCopy,      // reads a copy
  kChangeHome,   // reads and writes the home in place
  kProduceHome,  // writes the home without reading it
  kChangeCopy,   // reads and writes a copy
  kProduceCopy,  // writes a copy without reading it
};

struct Touch {
  TouchKind kind;
  uint32_t row;
  uint32_t copy = kNone;         // the copy filled, used or changed; kNone for homes
  uint32_t source_copy = kNone;  // kSpread, kWriteBack: the copy read
};

// Where a row rests.
struct HomePlace {
  uint32_t buffer = kNone;  // index into StepPlan::buffers; kNone: no home, or one on another rank
  uint64_t offset = 0;      // within the buffer
};

// A row's bytes in one ring value.
struct CopyPlace {
  uint32_t row;
  uint32_t buffer;
  std::vector<uint32_t> ops;  // that touch it, in plan order, each once
};

struct AccessMap {
  std::vector<ResidencyTable::Row> rows;  // sorted by kind, group, use, first byte
  std::vector<HomePlace> homes;           // by row
  std::vector<CopyPlace> copies;
  std::vector<std::vector<Touch>> touches;  // by op; reads before writes
};

// REQUIRES: source and destination of a transfer name the same bytes of the same shard, and a row
// has one home at most (else the compiler is broken: aborts).
AccessMap MakeAccessMap(const StepPlan& plan);

}  // namespace marea
