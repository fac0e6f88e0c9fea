// TCP sockets as the ranks need them: listen, connect with a deadline, and the address by which
// other machines reach this one. IPv4 and IPv6.
//
// Thread rule: free functions without state.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "engine/comm/world.h"
#include "io/status.h"
#include "io/unique_fd.h"

namespace marea {

using Deadline = std::chrono::steady_clock::time_point;

// Seconds as they read in a sentence: "60 s", "0.5 s".
std::string SecondsText(std::chrono::milliseconds time);

// "host:port", an IPv6 address in brackets.
std::string HostPort(const std::string& host, uint16_t port);

// The name of this machine.
std::string HostName();

struct Listener {
  UniqueFd fd;
  uint16_t port = 0;
};

// Listens on every address of this machine; port 0 takes any free one. kBusy if `port` is taken.
Result<Listener> ListenOn(uint16_t port);

// Tries again and again until `deadline`, since the other side may still be starting: then one
// sentence with the last reason.
Result<UniqueFd> ConnectTo(const std::string& host, uint16_t port, Deadline deadline);

// The address that this rank gives to others: of the interface named by GLOO_SOCKET_IFNAME, else of
// the one that leads to `world.master_address`. Where that is the loopback although there are ranks
// on other machines (a name that /etc/hosts maps to 127.0.1.1), the first other interface that is
// up. InvalidArgument if the interface that is named has no address.
Result<std::string> LocalAddress(const World& world);

bool IsLoopback(const std::string& address);

}  // namespace marea
