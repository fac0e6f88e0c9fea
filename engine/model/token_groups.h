// A micro-batch's rows, grouped by token: the embedding's gradient on the GPU adds one token's rows
// in one thread, in the order of the batch, so that it needs no atomics and gives the CPU's bits.
//
// Host code without torch or CUDA. Thread rule: one call at a time for a TokenGrouper.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace marea {

// Views of one piece of memory (see TokenGroupsIn). Group g is token tokens[g] and the rows
// rows[begins[g]] to rows[begins[g + 1] - 1], ascending. Tokens differ; their order is that of
// their first rows.
struct TokenGroups {
  uint32_t count = 0;
  const int32_t* tokens = nullptr;   // [count]
  const uint32_t* begins = nullptr;  // [count + 1]
  const uint32_t* rows = nullptr;    // [begins[count]]
};

// 32-bit words of memory that the groups of so many rows take at most.
constexpr uint64_t TokenGroupsWords(uint64_t rows) {
  return 3 * rows + 1;
}

// The same groups in a copy of their memory, e.g. on the device. `row_count`: as in Group.
TokenGroups TokenGroupsIn(const uint32_t* memory, uint64_t row_count, uint32_t group_count);

class TokenGrouper {
 public:
  // Keeps 4 bytes a token of the vocabulary.
  explicit TokenGrouper(uint32_t vocabulary);

  // Groups the rows of `tokens` into `memory`, the caller's, of TokenGroupsWords(tokens.size())
  // words or more. Rows of `padding_token` (-1: none) are in no group. Time grows with the rows,
  // not with the vocabulary.
  // REQUIRES: every token is in [0, vocabulary) (CheckTokens); fewer than 2^32 rows.
  TokenGroups Group(std::span<const int32_t> tokens, int64_t padding_token,
                    std::span<uint32_t> memory);

 private:
  std::vector<uint32_t> of_token_;  // all 0 between calls
};

}  // namespace marea
