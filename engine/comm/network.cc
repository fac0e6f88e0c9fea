#include "engine/comm/network.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

namespace marea {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kRetryAfter{100};
constexpr int kBacklog = 1024;

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// Empty on failure, and then `why` says why.
AddressList Resolve(const std::string& host, uint16_t port, int type, std::string& why) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = type;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) why = fmt::format("the name {} is not known: {}", host, ::gai_strerror(error));
  return AddressList(error == 0 ? found : nullptr, &::freeaddrinfo);
}

std::string AddressText(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text));
  } else if (address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text));
  }
  return text;
}

bool IsLinkLocal(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

// One attempt; 0 or the errno.
int ConnectOnce(const addrinfo& to, Deadline deadline, UniqueFd& connected) {
  UniqueFd fd(::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errno;
  if (::connect(fd.get(), to.ai_addr, to.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
    pollfd wait{fd.get(), POLLOUT, 0};
    const int timeout_ms = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 10'000));
    if (::poll(&wait, 1, timeout_ms) <= 0) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof(error);
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return error;
  }
  connected = std::move(fd);
  return 0;
}

Result<Listener> ListenFamily(int family, uint16_t port) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Status::Io("cannot open a socket", errno);
  const int on = 1;
  const int off = 0;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_storage any{};
  socklen_t size = sizeof(sockaddr_in);
  any.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET6) {
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    reinterpret_cast<sockaddr_in6*>(&any)->sin6_port = htons(port);
    size = sizeof(sockaddr_in6);
  } else {
    reinterpret_cast<sockaddr_in*>(&any)->sin_port = htons(port);
  }
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&any), size) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    const ErrorCode code = errno == EADDRINUSE ? ErrorCode::kBusy : ErrorCode::kIo;
    return Status::Errno(code, fmt::format("cannot listen on port {}", port), errno);
  }
  ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&any), &size);
  const uint16_t bound = family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&any)->sin6_port
                                            : reinterpret_cast<sockaddr_in*>(&any)->sin_port;
  return Listener{std::move(fd), ntohs(bound)};
}

// The source address of a packet to `host`; nothing is sent. Empty if there is no way there.
std::string SourceAddressTo(const std::string& host, uint16_t port) {
  std::string why;
  const AddressList found = Resolve(host, port, SOCK_DGRAM, why);
  for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next) {
    const UniqueFd fd(::socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t size = sizeof(own);
    if (!fd.valid() || ::connect(fd.get(), to->ai_addr, to->ai_addrlen) != 0) continue;
    if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) continue;
    const auto* address = reinterpret_cast<const sockaddr*>(&own);
    if (!IsLinkLocal(address)) return AddressText(address);
  }
  return {};
}

// The first address of the interface `name`, IPv4 before IPv6; an empty name: of the first
// interface that is up and no loopback.
std::string InterfaceAddress(const std::string& name) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      if ((entry->ifa_flags & IFF_UP) == 0 || IsLinkLocal(entry->ifa_addr)) continue;
      const bool wanted =
          name.empty() ? (entry->ifa_flags & IFF_LOOPBACK) == 0 : name == entry->ifa_name;
      if (wanted) return AddressText(entry->ifa_addr);
    }
  }
  return {};
}

}  // namespace

std::string SecondsText(milliseconds time) {
  return fmt::format("{:g} s", static_cast<double>(time.count()) / 1000.0);
}

std::string HostPort(const std::string& host, uint16_t port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

std::string HostName() {
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

Result<Listener> ListenOn(uint16_t port) {
  Result<Listener> both = ListenFamily(AF_INET6, port);
  if (both.ok() || both.status().code() == ErrorCode::kBusy) return both;
  return ListenFamily(AF_INET, port);
}

Result<UniqueFd> ConnectTo(const std::string& host, uint16_t port, Deadline deadline) {
  std::string why;
  do {
    const AddressList found = Resolve(host, port, SOCK_STREAM, why);
    for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next) {
      UniqueFd connected;
      const int error = ConnectOnce(*to, deadline, connected);
      if (error == 0) return connected;
      why = std::strerror(error);
    }
    std::this_thread::sleep_for(kRetryAfter);
  } while (steady_clock::now() < deadline);
  return Status::Failed(fmt::format("cannot connect to {}: {}", HostPort(host, port), why));
}

bool IsLoopback(const std::string& address) {
  return address == "::1" || address.starts_with("127.") || address.starts_with("::ffff:127.");
}

Result<std::string> LocalAddress(const World& world) {
  const char* named = std::getenv("GLOO_SOCKET_IFNAME");
  if (named != nullptr && named[0] != '\0') {
    const std::string address = InterfaceAddress(named);
    if (!address.empty()) return address;
    return Status::InvalidArgument(
        fmt::format("GLOO_SOCKET_IFNAME={}: no interface of that name is up with an address on {}",
                    named, HostName()));
  }
  std::string address = SourceAddressTo(world.master_address, world.master_port);
  const bool one_machine = world.local_size == world.size;
  if (address.empty() || (IsLoopback(address) && !one_machine)) {
    address = InterfaceAddress("");
  }
  if (address.empty() && one_machine) address = "127.0.0.1";
  if (!address.empty()) return address;
  return Status::Failed(fmt::format(
      "{} has no network interface that leads to MASTER_ADDR={}; name one in GLOO_SOCKET_IFNAME",
      HostName(), world.master_address));
}

}  // namespace marea
