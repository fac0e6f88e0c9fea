#include "src/launch/rank_plan.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "io/check.h"
#include "io/unique_fd.h"

namespace marea {
namespace {

// The port that a bind to port 0 got; 0 if this family of addresses does not work here.
uint16_t BoundPort(int family) {
  const UniqueFd listener(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 address = {};  // both families keep family and port in the same place
  address.sin6_family = static_cast<sa_family_t>(family);
  socklen_t length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener.get(), generic, length) != 0) return 0;
  if (getsockname(listener.get(), generic, &length) != 0) return 0;
  return ntohs(address.sin6_port);
}

bool IsPlain(char character) {
  constexpr std::string_view kPlain = "_-./:=,+@%";
  return std::isalnum(static_cast<unsigned char>(character)) != 0 ||
         kPlain.find(character) != std::string_view::npos;
}

}  // namespace

RankPlan PlanRanks(const std::vector<Host>& nodes, uint32_t node_rank, std::string master_address,
                   uint16_t master_port) {
  MAREA_CHECK(node_rank < nodes.size(), "a node beyond the last");
  RankPlan plan{.world_size = 0,
                .node_rank = node_rank,
                .local_ranks = nodes[node_rank].ranks,
                .master_address = std::move(master_address),
                .master_port = master_port};
  for (uint32_t node = 0; node < nodes.size(); ++node) {
    if (node == node_rank) plan.first_rank = plan.world_size;
    plan.world_size += nodes[node].ranks;
  }
  return plan;
}

std::vector<std::pair<std::string, std::string>> RankVariables(const RankPlan& plan,
                                                               uint32_t local_rank) {
  return {{"RANK", std::to_string(plan.first_rank + local_rank)},
          {"WORLD_SIZE", std::to_string(plan.world_size)},
          {"LOCAL_RANK", std::to_string(local_rank)},
          {"LOCAL_WORLD_SIZE", std::to_string(plan.local_ranks)},
          {"NODE_RANK", std::to_string(plan.node_rank)},
          {"MASTER_ADDR", plan.master_address},
          {"MASTER_PORT", std::to_string(plan.master_port)}};
}

Result<uint16_t> FreePort() {
  for (const int family : {AF_INET6, AF_INET}) {
    const uint16_t port = BoundPort(family);
    if (port != 0) return port;
  }
  return Status::Io("no TCP port can be had for the ranks to meet (give one with --master-port)",
                    errno);
}

std::string ShellText(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    bool plain = !word.empty();
    for (const char character : word) plain = plain && IsPlain(character);
    if (plain) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char character : word) {
      if (character == '\'') {
        text += "'\\''";
      } else {
        text += character;
      }
    }
    text += '\'';
  }
  return text;
}

}  // namespace marea
