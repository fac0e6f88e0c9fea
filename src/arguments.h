// From a command's words to the values of its flags.
//
// CLI11 holds the flags, converts them and writes the help; this adds what the project promises
// around it: a flag may be written with - or _, an unknown one names the nearest, and every mistake
// is one sentence.
//
// Thread rule: pure functions.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "io/status.h"

namespace marea {

enum class ParseOutcome : uint8_t {
  kRun,
  kHelp,  // asked for; nothing was set
};

// Sets what `app`'s options are bound to. InvalidArgument: an unknown flag, a flag without its
// value, with a value that it does not take, or given twice, or an argument that no one asked for.
// Values are taken as text: what they mean is checked where they are used.
Result<ParseOutcome> ParseArguments(CLI::App& app, const std::vector<std::string>& arguments);

// The one of `names` that differs least from `name`. REQUIRES: `names` is not empty.
std::string NearestName(std::string_view name, const std::vector<std::string>& names);

}  // namespace marea
