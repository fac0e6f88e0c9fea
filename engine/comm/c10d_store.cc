#include "engine/comm/c10d_store.h"

#include <c10/util/Logging.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace marea {
namespace {

using std::chrono::milliseconds;

// The first line: the rest of a c10 error is a backtrace.
std::string FirstLine(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// A store that goes away is told in our own words; c10d would add pages of its own to stderr. Who
// sets TORCH_CPP_LOG_LEVEL hears c10d as well.
void QuietC10d() {
  static const bool once = [] {
    constexpr int kErrorsOnly = 2;
    if (std::getenv("TORCH_CPP_LOG_LEVEL") != nullptr) {
      c10::initLogging();
    } else {
      FLAGS_caffe2_log_level = std::max(FLAGS_caffe2_log_level, kErrorsOnly);
    }
    return true;
  }();
  static_cast<void>(once);
}

template <typename Call>
auto Guarded(const char* what, Call&& call) -> Result<decltype(call())> {
  try {
    return call();
  } catch (const c10::Error& error) {
    return Status::Failed(fmt::format("{}: {}", what, FirstLine(error.what_without_backtrace())));
  } catch (const std::exception& error) {
    return Status::Failed(fmt::format("{}: {}", what, FirstLine(error.what())));
  }
}

c10d::TCPStoreOptions ClientOptions(uint16_t port, milliseconds timeout) {
  QuietC10d();
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  options.timeout = std::max(timeout, milliseconds(1000));  // whole seconds inside
  return options;
}

}  // namespace

struct RendezvousStore::Connection {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

RendezvousStore::RendezvousStore(std::unique_ptr<Connection> connection)
    : connection_(std::move(connection)) {}
RendezvousStore::~RendezvousStore() = default;

Result<std::unique_ptr<RendezvousStore>> RendezvousStore::Serve(Listener listener,
                                                                milliseconds timeout) {
  c10d::TCPStoreOptions options = ClientOptions(listener.port, timeout);
  options.isServer = true;
  options.masterListenFd = listener.fd.Release();  // the server closes it
  return Guarded("cannot serve the ranks' store", [&] {
    auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    return std::unique_ptr<RendezvousStore>(
        new RendezvousStore(std::make_unique<Connection>(Connection{std::move(store)})));
  });
}

Result<std::unique_ptr<RendezvousStore>> RendezvousStore::Connect(const std::string& host,
                                                                  uint16_t port,
                                                                  Deadline deadline) {
  // Waits quietly for the port to open: TCPStore would warn of every attempt.
  MAREA_RETURN_IF_ERROR(ConnectTo(host, port, deadline).status());
  const auto left =
      std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
  const std::string what = fmt::format("what answers at {} is no store", HostPort(host, port));
  return Guarded(what.c_str(), [&] {
    auto store = c10::make_intrusive<c10d::TCPStore>(host, ClientOptions(port, left));
    return std::unique_ptr<RendezvousStore>(
        new RendezvousStore(std::make_unique<Connection>(Connection{std::move(store)})));
  });
}

namespace {

constexpr char kLost[] = "the store that rank 0 or the agent serves is gone";

std::string Text(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}
std::vector<uint8_t> Bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

}  // namespace

Result<std::string> RendezvousStore::SetOnce(const std::string& key, const std::string& value) {
  return Guarded(
      kLost, [&] { return Text(connection_->store->compareSet(key, Bytes(""), Bytes(value))); });
}

Status RendezvousStore::Set(const std::string& key, const std::string& value) {
  return Guarded(kLost,
                 [&] {
                   connection_->store->set(key, Bytes(value));
                   return true;
                 })
      .status();
}

Result<bool> RendezvousStore::Has(const std::string& key) {
  return Guarded(kLost, [&] { return connection_->store->check({key}); });
}

Result<std::string> RendezvousStore::Get(const std::string& key) {
  return Guarded(kLost, [&] { return Text(connection_->store->get(key)); });
}

Result<int64_t> RendezvousStore::Add(const std::string& key, int64_t value) {
  return Guarded(kLost, [&] { return connection_->store->add(key, value); });
}

}  // namespace marea
