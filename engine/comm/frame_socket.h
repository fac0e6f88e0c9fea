// Messages of a few texts over a TCP connection that never blocks its owner.
//
// On the wire: u32 bytes that follow, u8 kind, then each text as u32 length and its bytes (all in
// this machine's byte order: ranks run one binary). What is queued leaves with Flush; what arrives
// with Receive stays until it is taken. A message above kFrameBytesMax, or one that does not parse,
// counts as closed: whoever sent it is no rank of ours.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "io/unique_fd.h"

namespace marea {

constexpr uint32_t kFrameBytesMax = 64u << 20;

struct Frame {
  uint8_t kind = 0;
  std::vector<std::string> texts;
};

class FrameSocket {
 public:
  FrameSocket() = default;
  // Takes a connected socket and makes it non-blocking.
  explicit FrameSocket(UniqueFd fd);

  int fd() const { return fd_.get(); }
  bool open() const { return fd_.valid(); }
  bool has_unsent() const { return sent_ < out_.size(); }

  void Queue(const Frame& frame);
  // Sends what the connection takes now. False once it is closed or broken.
  bool Flush();
  // Reads what has arrived. False once it is closed or broken; messages that came before that can
  // still be taken.
  bool Receive();
  // The oldest message that has been received in full and not taken yet.
  std::optional<Frame> Take();
  void Close();

 private:
  bool Parse();

  UniqueFd fd_;
  std::string out_;
  size_t sent_ = 0;
  std::string in_;
  std::deque<Frame> received_;
};

}  // namespace marea
