#include "engine/model/token_groups.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace marea {
namespace {

using Rows = std::map<int32_t, std::vector<uint32_t>>;

Rows RowsOf(const TokenGroups& groups) {
  Rows rows;
  for (uint32_t g = 0; g < groups.count; ++g) {
    EXPECT_FALSE(rows.contains(groups.tokens[g])) << "token " << groups.tokens[g] << " twice";
    EXPECT_LT(groups.begins[g], groups.begins[g + 1]) << "an empty group";
    rows[groups.tokens[g]].assign(groups.rows + groups.begins[g],
                                  groups.rows + groups.begins[g + 1]);
  }
  return rows;
}

TEST(TokenGroupsTest, EveryRowIsInItsTokensGroupInTheOrderOfTheBatch) {
  constexpr uint32_t kVocabulary = 50;
  TokenGrouper grouper(kVocabulary);  // the same one for all: calls leave nothing behind
  std::mt19937 random(1);
  for (size_t count = 0; count < 300; ++count) {
    const int64_t padding = count % 2 == 0 ? -1 : 7;
    std::vector<int32_t> tokens(count);
    Rows expected;
    for (uint32_t row = 0; row < count; ++row) {
      tokens[row] = static_cast<int32_t>(random() % kVocabulary);
      if (tokens[row] != padding) expected[tokens[row]].push_back(row);
    }
    std::vector<uint32_t> memory(TokenGroupsWords(count) + 1, 0xdeadbeef);
    const TokenGroups groups =
        grouper.Group(tokens, padding, std::span(memory).first(3 * count + 1));
    EXPECT_EQ(groups.begins[0], 0u);
    ASSERT_EQ(RowsOf(groups), expected) << count << " rows";
    EXPECT_EQ(memory.back(), 0xdeadbeef) << "written behind the memory";
  }
}

TEST(TokenGroupsTest, OnlyPaddingHasNoGroup) {
  const std::vector<int32_t> tokens(10, 3);
  std::vector<uint32_t> memory(TokenGroupsWords(tokens.size()));
  const TokenGroups groups = TokenGrouper(4).Group(tokens, 3, memory);
  EXPECT_EQ(groups.count, 0u);
  EXPECT_EQ(groups.begins[0], 0u);
}

TEST(TokenGroupsTest, ACopyOfTheMemoryHoldsTheSameGroups) {
  const std::vector<int32_t> tokens = {9, 1, 9, 2, 1, 9};
  std::vector<uint32_t> memory(TokenGroupsWords(tokens.size()));
  const TokenGroups groups = TokenGrouper(10).Group(tokens, -1, memory);
  const std::vector<uint32_t> copy = memory;
  const TokenGroups copied = TokenGroupsIn(copy.data(), tokens.size(), groups.count);
  EXPECT_EQ(RowsOf(copied), (Rows{{9, {0, 2, 5}}, {1, {1, 4}}, {2, {3}}}));
}

TEST(TokenGroupsDeathTest, ATokenOutsideTheVocabularyStopsTheProcess) {
  std::vector<uint32_t> memory(TokenGroupsWords(1));
  for (const int32_t token : {-1, 4}) {
    const std::vector<int32_t> tokens = {token};
    EXPECT_DEATH(TokenGrouper(4).Group(tokens, -1, memory), "outside the vocabulary");
  }
}

}  // namespace
}  // namespace marea
