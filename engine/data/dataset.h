// Samples of a fixed length cut from a TokenSource.
//
// Sample j is tokens [j*T, j*T + T]: T inputs, and T labels shifted by one, so neighbours share one
// token and n tokens give (n - 1) / T samples; what is left at the end is not used. Every label
// weighs 1; weights are part of the interface so that masked labels need no other path.
//
// Owner: the caller. Thread rule: after Open, const calls from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/data/token_source.h"
#include "io/status.h"

namespace marea {

struct DatasetOptions {
  std::string path;
  uint32_t sequence_length;
  uint32_t vocabulary;  // of the model
};

class Dataset {
 public:
  // InvalidArgument if the source cannot be opened (see TokenSource), holds less than one sample
  // (bytes available and needed are named), or has a token id that the model does not know (the
  // first one, with its sample). Blocks for a pass over the data. REQUIRES: sequence_length and
  // vocabulary are positive.
  static Result<std::unique_ptr<Dataset>> Open(const DatasetOptions& options);

  uint64_t samples() const { return samples_; }
  uint32_t sequence_length() const { return sequence_length_; }
  const TokenSource& source() const { return *source_; }

  // Fills one row of T values in each array. REQUIRES: sample < samples().
  void ReadSample(uint64_t sample, int32_t* tokens, int32_t* labels, float* weights) const;

 private:
  Dataset(std::unique_ptr<TokenSource> source, uint32_t sequence_length, uint64_t samples);

  std::unique_ptr<TokenSource> source_;
  uint32_t sequence_length_;
  uint64_t samples_;
};

}  // namespace marea
