// The lines of several ranks on one output: each whole, each with the rank's name in front.
//
// Owner: ProcessGroup. Thread rule: one thread.
#pragma once

#include <string>
#include <string_view>

namespace marea {

// Cuts what a process writes into lines. A carriage return ends a line as well (a progress line
// that is written over), with or without a line feed behind it.
class LineSplitter {
 public:
  explicit LineSplitter(std::string prefix) : prefix_(std::move(prefix)) {}

  // Appends to `to` every line that `bytes` completes.
  void Feed(std::string_view bytes, std::string& to);
  // The process ended: appends what it left without an end of line.
  void End(std::string& to);

 private:
  void Emit(std::string& to);

  std::string prefix_;
  std::string line_;
  bool after_return_ = false;
};

// Bytes on their way to a file descriptor that may be slow: nothing here waits for it, so that
// signals and ranks are served while the reader of a pipe, or a terminal, stands still.
class OutputQueue {
 public:
  explicit OutputQueue(int fd) : fd_(fd) {}

  int fd() const { return fd_; }
  std::string& text() { return text_; }
  bool empty() const { return text_.empty(); }
  // More than this waits here: let the ranks wait, too.
  bool full() const { return text_.size() > (1u << 20); }
  // Writes a part. Call it when poll says that it does not block.
  void Pump();
  // What was written is lost: a closed pipe, a full disk.
  bool failed() const { return failed_; }

 private:
  int fd_;
  std::string text_;
  bool failed_ = false;
};

}  // namespace marea
