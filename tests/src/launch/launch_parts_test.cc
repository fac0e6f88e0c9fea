// Hostfiles, a rank's environment, lines of several ranks on one output.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>

#include "io/unique_fd.h"
#include "src/launch/hostfile.h"
#include "src/launch/line_output.h"
#include "src/launch/rank_plan.h"

namespace marea {
namespace {

TEST(Hostfile, HostsInOrderWithTheirSlots) {
  const auto hosts = ParseHostfile("f", "# all\n\nworker-1 slots=4  # old\n  10.0.0.2\tslots=2\n");
  ASSERT_TRUE(hosts.ok()) << hosts.status().message();
  ASSERT_EQ(hosts.value().size(), 2u);
  EXPECT_EQ(hosts.value()[0].name, "worker-1");
  EXPECT_EQ(hosts.value()[0].ranks, 4u);
  EXPECT_EQ(hosts.value()[1].name, "10.0.0.2");
  EXPECT_EQ(hosts.value()[1].ranks, 2u);
}

TEST(Hostfile, EveryMistakeNamesFileAndLine) {
  for (const std::string line : {"a", "a slots=0", "a slots=-1", "a slots=2x", "a slots=",
                                 "slots=4", "a slots=4 more", "a slots=99999", "b slots=1"}) {
    const auto hosts = ParseHostfile("hosts.txt", "b slots=1\n" + line + "\n");
    ASSERT_FALSE(hosts.ok()) << line;
    EXPECT_EQ(hosts.status().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(hosts.status().message().find("hosts.txt, line 2"), std::string::npos)
        << hosts.status().message();
  }
  const auto none = ParseHostfile("hosts.txt", "# nothing\n");
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().message().find("hosts.txt"), std::string::npos);
  EXPECT_FALSE(ReadHostfile("/nowhere/hosts").ok());
  EXPECT_FALSE(ReadHostfile("/").ok());
}

TEST(RankPlan, CountsThroughUnequalNodes) {
  const std::vector<Host> nodes = {{"a", 2}, {"b", 3}, {"c", 1}};
  const RankPlan plan = PlanRanks(nodes, 1, "a", 29500);
  const auto pairs = RankVariables(plan, 2);
  const std::map<std::string, std::string> variables(pairs.begin(), pairs.end());
  const std::map<std::string, std::string> expected = {
      {"RANK", "4"},      {"WORLD_SIZE", "6"},  {"LOCAL_RANK", "2"},     {"LOCAL_WORLD_SIZE", "3"},
      {"NODE_RANK", "1"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}};
  EXPECT_EQ(variables, expected);
  EXPECT_EQ(PlanRanks(nodes, 0, "a", 1).first_rank, 0u);
  EXPECT_EQ(PlanRanks(nodes, 2, "a", 1).first_rank, 5u);
}

TEST(RankPlan, AFreePortCanBeListenedOn) {
  const Result<uint16_t> port = FreePort();
  ASSERT_TRUE(port.ok()) << port.status().message();
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port.value());
  EXPECT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
}

TEST(ShellText, QuotesWhatAShellWouldTakeApart) {
  EXPECT_EQ(ShellText({"marea", "--data", "a b.txt", "it's", "", "$x", "/a/b-c_d.1=2:3"}),
            "marea --data 'a b.txt' 'it'\\''s' '' '$x' /a/b-c_d.1=2:3");
}

std::string Split(const std::vector<std::string>& pieces) {
  LineSplitter splitter("[1] ");
  std::string text;
  for (const std::string& piece : pieces) splitter.Feed(piece, text);
  splitter.End(text);
  return text;
}

TEST(LineSplitter, WholeLinesHoweverTheyArrive) {
  const std::string expected = "[1] one\n[1] \n[1] two\n[1] three\n";
  const std::string text = "one\n\ntwo\nthree";
  EXPECT_EQ(Split({text}), expected);
  std::vector<std::string> bytes;
  for (const char byte : text) bytes.emplace_back(1, byte);
  EXPECT_EQ(Split(bytes), expected);
  LineSplitter splitter("[1] ");
  std::string out;
  splitter.Feed("not yet", out);
  EXPECT_EQ(out, "");
}

TEST(LineSplitter, ACarriageReturnEndsALine) {
  EXPECT_EQ(Split({"\rstep 1\rstep 2\r", "\nend\r\n\r\n"}),
            "[1] step 1\n[1] step 2\n[1] end\n[1] \n");
}

TEST(LineSplitter, AnEndlessLineIsCut) {
  LineSplitter splitter("");
  std::string out;
  for (int i = 0; i < 40; ++i) splitter.Feed(std::string(1 << 16, 'x'), out);
  EXPECT_GE(out.size(), size_t{2} << 20);
}

TEST(OutputQueue, AClosedReaderIsSeenAndKeepsNothing) {
  signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  UniqueFd read_end(ends[0]);
  const UniqueFd write_end(ends[1]);
  OutputQueue queue(write_end.get());
  queue.text() = "first";
  queue.Pump();
  EXPECT_TRUE(queue.empty());
  char buffer[16] = {};
  EXPECT_EQ(read(read_end.get(), buffer, sizeof(buffer)), 5);
  read_end.Reset();
  queue.text() = "second";
  queue.Pump();
  EXPECT_TRUE(queue.failed());
  EXPECT_TRUE(queue.empty());
  queue.text() = "third";
  queue.Pump();
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace marea
