#include "src/messages.h"

#include <fmt/format.h>

#include <cstdio>

namespace marea {

std::string OneLine(const std::string& text) {
  std::string line;
  for (const char character : text) {
    if (character == '\n' || character == '\r' || character == '\t') {
      line += ' ';
    } else if (static_cast<unsigned char>(character) < 0x20 || character == 0x7f) {
      line += fmt::format("\\x{:02x}", static_cast<unsigned char>(character));
    } else {
      line += character;
    }
  }
  return line;
}

void PrintError(const std::string& sentence) {
  fmt::print(stderr, "marea: {}\n", OneLine(sentence));
}

void PrintWarning(const std::string& sentence) {
  PrintError("warning: " + sentence);
}

void PrintNote(const std::string& sentence) {
  PrintError("note: " + sentence);
}

int FailWith(const Status& status) {
  PrintError(status.message());
  return ExitCode(status.code());
}

int FailWithInput(const Status& status) {
  const int exit_status = FailWith(status);
  return status.code() == ErrorCode::kCorrupt ? ExitCode(ErrorCode::kInvalidArgument) : exit_status;
}

}  // namespace marea
