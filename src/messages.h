// What the command line says on stderr. One sentence a line, always with the program's name.
//
// Owner: the command. Thread rule: one thread.
#pragma once

#include <string>

#include "io/status.h"

namespace marea {

// One line: line breaks and control characters, which a path or a file's text may bring along, are
// made visible.
std::string OneLine(const std::string& text);

// "marea: <sentence>"
void PrintError(const std::string& sentence);
// "marea: warning: <sentence>"
void PrintWarning(const std::string& sentence);
// "marea: note: <sentence>"
void PrintNote(const std::string& sentence);

// Prints a failure; returns the exit status it leads to. REQUIRES: !status.ok().
int FailWith(const Status& status);
// The same for what the command was given to read: a damaged file is wrong input, exit status 2.
int FailWithInput(const Status& status);

}  // namespace marea
