// Drives workloads on block devices and takes the time: bytes a second, latencies, processor time.
//
// One stream is one thread that drives one device: it keeps as many transfers in flight as the
// depth says, submits those of a round of completions in one call, verifies what it reads, and
// counts. The calling thread only watches: it opens and closes the measured window, shows
// progress, passes a stop on, and notices a device that does not answer.
//
// Method: a warm-up is dropped; the window counts what completed in it, so that neither the start
// nor the draining of the queue is in a figure. Processor time is the whole process's (getrusage),
// verification and the kernel's workers for this process included.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/block_device.h"
#include "io/data_file.h"
#include "io/status.h"
#include "src/bench/latency_histogram.h"
#include "src/bench/page_stamps.h"
#include "src/bench/workload.h"

namespace marea {

// A file under test. Owner: the session; used by one stream at a time.
struct BenchFile {
  std::string folder;  // as the user named it
  DataFile file;
  PageStamps stamps;
};

struct Stream {
  BlockDevice* device = nullptr;  // made for this run, not driven by anybody yet
  std::vector<BenchFile*> files;  // as the device knows them
  Workload* workload = nullptr;
  // Whole slots of workload->bytes_max(), filled by FillRandomPages; as many transfers may be in
  // flight.
  std::span<std::byte> memory;
  VerifyDepth verify = VerifyDepth::kStamps;  // each 64th read is looked at whole all the same
  int numa_node = -1;
};

struct RunLimit {
  // The measured window, and on until as much as each stream keeps in flight has ended in it: a
  // drive that paused has a rate, too. 0: the workloads end by themselves, the window is the whole
  // run.
  double seconds = 0;
  double warm_up_seconds = 0;
  // With seconds: end each workload's round instead of the window, which then begins at the start.
  bool whole_rounds = false;
};

struct RunProgress {
  double seconds = 0;  // since the start
  uint64_t bytes = 0;  // moved since the start
  double bytes_per_second = 0;
};

// What the calling thread does while streams run.
struct RunWatch {
  std::function<void(const RunProgress&)> progress;  // ten times a second
  const std::atomic<bool>* stop = nullptr;           // set: Cancelled
  // A stream without a completion for so long is taken for dead: its memory still belongs to the
  // kernel, so nothing can be taken down, and `on_stall`, which must not return, is called.
  double give_up_seconds = 30;
  std::function<void(const Status&)> on_stall;  // must be given
};

struct Measurement {
  double seconds = 0;
  double io_cpu_seconds = 0;    // of the whole process, without the next
  double data_cpu_seconds = 0;  // stamping what is written, checking what was read
  uint64_t read_bytes = 0;
  uint64_t write_bytes = 0;
  std::vector<uint64_t> stream_bytes;  // by stream
  LatencyHistogram latency;            // from Submit to Reap, all streams
  std::vector<uint64_t> second_bytes;  // by second of the window: where a drive slows down
  uint32_t kernel_workers = 0;         // io-wq threads at the end of the window
};

// Runs all streams at once. Corrupt if what is read is not what was written; Io from a device, with
// its path; Cancelled. Blocks.
Result<Measurement> RunStreams(std::span<Stream> streams, const RunLimit& limit,
                               const RunWatch& watch);

}  // namespace marea
