// The key-value store by which ranks find each other: c10d's TCPStore, so that torchrun's agent can
// serve it. Used while joining and by Gloo to set up its connections, never afterwards.
//
// Thread rule: one connection per thread: a call that waits holds the connection. No call throws.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/comm/network.h"
#include "io/status.h"

namespace marea {

class RendezvousStore {
 public:
  // Serves a store on `listener` and connects to it. The store ends with this object.
  static Result<std::unique_ptr<RendezvousStore>> Serve(Listener listener,
                                                        std::chrono::milliseconds timeout);
  // Connects to the store at `host`, trying until `deadline`. It may hang for good if something
  // else answers there: call it through RunBounded.
  static Result<std::unique_ptr<RendezvousStore>> Connect(const std::string& host, uint16_t port,
                                                          Deadline deadline);
  ~RendezvousStore();

  // Sets `key` unless it has a value; returns the value that it has afterwards.
  Result<std::string> SetOnce(const std::string& key, const std::string& value);
  Status Set(const std::string& key, const std::string& value);
  Result<bool> Has(const std::string& key);
  // REQUIRES: the key has a value.
  Result<std::string> Get(const std::string& key);
  // Adds to a counter that starts at 0; returns its value afterwards.
  Result<int64_t> Add(const std::string& key, int64_t value);

 private:
  struct Connection;
  explicit RendezvousStore(std::unique_ptr<Connection> connection);

  std::unique_ptr<Connection> connection_;
};

}  // namespace marea
