#include "engine/comm/frame_socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

namespace marea {
namespace {

void PutU32(std::string& out, uint32_t value) {
  char bytes[sizeof(value)];
  std::memcpy(bytes, &value, sizeof(value));
  out.append(bytes, sizeof(bytes));
}

std::optional<uint32_t> TakeU32(std::string_view& in) {
  uint32_t value = 0;
  if (in.size() < sizeof(value)) return std::nullopt;
  std::memcpy(&value, in.data(), sizeof(value));
  in.remove_prefix(sizeof(value));
  return value;
}

std::optional<Frame> ParseBody(std::string_view body) {
  if (body.empty()) return std::nullopt;
  Frame frame;
  frame.kind = static_cast<uint8_t>(body.front());
  body.remove_prefix(1);
  while (!body.empty()) {
    const std::optional<uint32_t> length = TakeU32(body);
    if (!length || *length > body.size()) return std::nullopt;
    frame.texts.emplace_back(body.substr(0, *length));
    body.remove_prefix(*length);
  }
  return frame;
}

}  // namespace

FrameSocket::FrameSocket(UniqueFd fd) : fd_(std::move(fd)) {
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  ::fcntl(fd_.get(), F_SETFL, flags | O_NONBLOCK);
  const int on = 1;
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void FrameSocket::Queue(const Frame& frame) {
  if (!open()) return;
  std::string body(1, static_cast<char>(frame.kind));
  for (const std::string& text : frame.texts) {
    PutU32(body, static_cast<uint32_t>(text.size()));
    body += text;
  }
  PutU32(out_, static_cast<uint32_t>(body.size()));
  out_ += body;
}

bool FrameSocket::Flush() {
  while (open() && has_unsent()) {
    const ssize_t count =
        ::send(fd_.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      sent_ += static_cast<size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return true;
    } else if (errno != EINTR) {
      return false;
    }
  }
  out_.clear();
  sent_ = 0;
  return open();
}

bool FrameSocket::Receive() {
  char buffer[16384];
  while (open()) {
    const ssize_t count = ::recv(fd_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (count > 0) {
      in_.append(buffer, static_cast<size_t>(count));
      if (!Parse()) return false;
    } else if (count < 0 && errno == EINTR) {
      continue;
    } else {
      return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    }
  }
  return false;
}

std::optional<Frame> FrameSocket::Take() {
  if (received_.empty()) return std::nullopt;
  Frame frame = std::move(received_.front());
  received_.pop_front();
  return frame;
}

bool FrameSocket::Parse() {
  std::string_view rest = in_;
  while (true) {
    std::string_view ahead = rest;
    const std::optional<uint32_t> length = TakeU32(ahead);
    if (!length) break;
    if (*length > kFrameBytesMax) return false;
    if (ahead.size() < *length) break;
    std::optional<Frame> frame = ParseBody(ahead.substr(0, *length));
    if (!frame) return false;
    received_.push_back(std::move(*frame));
    rest = ahead.substr(*length);
  }
  in_.erase(0, in_.size() - rest.size());
  return true;
}

void FrameSocket::Close() {
  fd_.Reset();
  out_.clear();
  sent_ = 0;
  in_.clear();
  received_.clear();
}

}  // namespace marea
