// From a command's words to the values of its flags.
//
// CLI11 holds the flags, converts them and writes the help; this adds what the project promises
// around it: a flag may be written with - or _, an unknown one names the nearest, and every mistake
// is one sentence. CLI11's headers stay in arguments.cc: they cost each source ten seconds.
//
// Owner: the command. Thread rule: one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/status.h"

namespace marea {

enum class ParseOutcome : uint8_t {
  kRun,
  kHelp,  // asked for; nothing was set
};

class FlagSet {
 public:
  // `command` as it is typed, "marea train"; `purpose` is the first line of its help.
  FlagSet(const std::string& command, const std::string& purpose);
  ~FlagSet();

  // Binds flags to where their values go, which outlives this object. `names`: "--output" or
  // "--output,--output-dir"; `type`: "FILE", for the help; `what` follows it there.
  void Text(const char* names, std::string& target, const char* type, const char* what);
  void Texts(const char* names, std::vector<std::string>& target, const char* type,
             const char* what);  // may be repeated
  void Switch(const char* names, bool& target, const char* what);
  void Positional(const char* name, std::string& target, const char* type, const char* what);
  void Footer(const std::string& text);  // of the help

  // Sets what is bound. InvalidArgument: an unknown flag, a flag without its value, with a value
  // that it does not take, or given twice, or an argument that no one asked for. Values are taken
  // as text: what they mean is checked where they are used.
  Result<ParseOutcome> Parse(const std::vector<std::string>& arguments);
  // The same for a command: the exit status where it ends here, since help was asked for (and is
  // printed) or a mistake was made (and is said).
  std::optional<int> ParseOrEnd(const std::vector<std::string>& arguments);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The one of `names` that differs least from `name`. REQUIRES: `names` is not empty.
std::string NearestName(std::string_view name, const std::vector<std::string>& names);

}  // namespace marea
