// What this machine has and what of it works: the content of `marea report`.
//
// Thread rule: one thread. Blocks for a second at most; leaves nothing behind.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace marea {

// A fact with its JSON value and its text for people.
struct Fact {
  std::string section;  // "versions", "cpu", "memory", "gpu", "io"
  std::string key;
  nlohmann::ordered_json value;
  std::string text;
};

struct MachineFacts {
  std::vector<Fact> facts;            // sections together, in order
  std::vector<std::string> problems;  // sentences: what does not work, why, and the remedy
};

// `io_folder`: where a small file is made to try direct I/O and the modes of a block device.
MachineFacts CollectFacts(const std::string& io_folder);

std::string FactsJson(const MachineFacts& facts);
std::string FactsText(const MachineFacts& facts);

}  // namespace marea
