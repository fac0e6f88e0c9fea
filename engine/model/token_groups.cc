#include "engine/model/token_groups.h"

#include <limits>

#include "io/check.h"

namespace marea {

TokenGroups TokenGroupsIn(const uint32_t* memory, uint64_t row_count, uint32_t group_count) {
  return {group_count, reinterpret_cast<const int32_t*>(memory), memory + row_count,
          memory + 2 * row_count + 1};
}

TokenGrouper::TokenGrouper(uint32_t vocabulary) : of_token_(vocabulary) {}

TokenGroups TokenGrouper::Group(std::span<const int32_t> tokens, int64_t padding_token,
                                std::span<uint32_t> memory) {
  const uint64_t row_count = tokens.size();
  MAREA_CHECK(row_count < std::numeric_limits<uint32_t>::max(), "too many rows to group");
  MAREA_CHECK(memory.size() >= TokenGroupsWords(row_count), "too little memory for the groups");
  uint32_t* const group_tokens = memory.data();
  uint32_t* const begins = group_tokens + row_count;
  uint32_t* const rows = begins + row_count + 1;

  // How often each token comes, and which there are.
  uint32_t group_count = 0;
  for (const int32_t token : tokens) {
    MAREA_CHECK(token >= 0 && static_cast<size_t>(token) < of_token_.size(),
                "a token outside the vocabulary");
    if (token == padding_token) continue;
    if (of_token_[token]++ == 0) group_tokens[group_count++] = static_cast<uint32_t>(token);
  }
  // Where each group begins; of_token_ becomes the place of the token's next row.
  uint32_t begin = 0;
  for (uint32_t group = 0; group < group_count; ++group) {
    uint32_t& next = of_token_[group_tokens[group]];
    const uint32_t count = next;
    begins[group] = next = begin;
    begin += count;
  }
  begins[group_count] = begin;
  for (uint64_t row = 0; row < row_count; ++row) {
    if (tokens[row] != padding_token) rows[of_token_[tokens[row]]++] = static_cast<uint32_t>(row);
  }
  for (uint32_t group = 0; group < group_count; ++group) of_token_[group_tokens[group]] = 0;
  return TokenGroupsIn(memory.data(), row_count, group_count);
}

}  // namespace marea
