// Groups of shell processes: what they write, how they end, and that none is left.
#include "src/launch/process_group.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <sstream>
#include <thread>

namespace marea {
namespace {

using Clock = std::chrono::steady_clock;

ProcessGroupOptions Shells(uint32_t count, const std::string& script) {
  ProcessGroupOptions options;
  options.executable = "/bin/sh";
  options.words = {"-c", script};
  for (uint32_t rank = 0; rank < count; ++rank) {
    options.ranks.push_back({rank, {{"RANK", std::to_string(rank)}}});
  }
  options.grace_seconds = 0.3;
  options.kill_seconds = 0.3;
  return options;
}

struct Outcome {
  int status = -1;
  std::string out, err;
  double seconds = 0;
};

Outcome RunShells(const ProcessGroupOptions& options) {
  Outcome outcome;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const auto began = Clock::now();
  const Result<int> status = RunRanks(options);
  outcome.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  outcome.status = status.ok() ? status.value() : -1;
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
  return outcome;
}

// A process that is nobody's child here sends this one signals, 0.25 s apart. A thread would not
// do: one that does not block them would take them.
void SendLater(int number, int times) {
  const pid_t target = getpid();
  const pid_t child = fork();
  if (child == 0) {
    if (fork() == 0) {
      for (int i = 0; i < times; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(250));
        kill(target, number);
      }
    }
    _exit(0);
  }
  waitpid(child, nullptr, 0);
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ProcessGroup, EveryLineBearsItsRank) {
  const Outcome outcome = RunShells(Shells(3, "echo here $RANK; echo there $RANK >&2"));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const std::string rank : {"0", "1", "2"}) {
    EXPECT_TRUE(Has(outcome.out, "[" + rank + "] here " + rank + "\n")) << outcome.out;
    EXPECT_TRUE(Has(outcome.err, "[" + rank + "] there " + rank + "\n")) << outcome.err;
  }
}

TEST(ProcessGroup, LinesOfManyAreNeverMixed) {
  const Outcome outcome = RunShells(Shells(
      4,
      "i=0; while [ $i -lt 2000 ]; do printf 'a line of rank '; echo $RANK-$i; i=$((i+1)); done"));
  size_t lines = 0;
  std::istringstream stream(outcome.out);
  for (std::string line; std::getline(stream, line); ++lines) {
    ASSERT_EQ(
        line.rfind("[" + line.substr(1, 1) + "] a line of rank " + line.substr(1, 1) + "-", 0), 0u)
        << line;
  }
  EXPECT_EQ(lines, 8000u);
}

TEST(ProcessGroup, OneAloneWritesAsIfStartedByItself) {
  const Outcome outcome = RunShells(Shells(1, "echo here; cat; echo done"));
  EXPECT_EQ(outcome.out, "here\ndone\n");
}

TEST(ProcessGroup, StdoutWithoutPrefixWhereAsked) {
  ProcessGroupOptions options = Shells(2, "[ $RANK = 1 ] || echo '{}'; echo x >&2");
  options.prefix_stdout = false;
  const Outcome outcome = RunShells(options);
  EXPECT_EQ(outcome.out, "{}\n");
  EXPECT_TRUE(Has(outcome.err, "[1] x\n"));
}

TEST(ProcessGroup, TheStatusIsThatOfTheFirstFailure) {
  const Outcome outcome =
      RunShells(Shells(3, "case $RANK in 1) exit 3;; 2) sleep 0.1; exit 1;; esac"));
  EXPECT_EQ(outcome.status, 3);
  EXPECT_TRUE(Has(outcome.err, "marea: rank 1 failed with exit status 3\n")) << outcome.err;
  EXPECT_FALSE(Has(outcome.err, "rank 2"));
  EXPECT_LT(outcome.seconds, 0.3);
}

TEST(ProcessGroup, TheOthersGetAGraceThenSigterm) {
  const Outcome outcome = RunShells(Shells(2, "[ $RANK = 1 ] && exit 1; exec sleep 60"));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(Has(outcome.err, "rank 0 is still there 0.3 s")) << outcome.err;
  EXPECT_GE(outcome.seconds, 0.3);
  EXPECT_LT(outcome.seconds, 0.6);
}

TEST(ProcessGroup, WhoDoesNotAnswerIsKilled) {
  for (const std::string deaf : {"trap '' TERM; sleep 60", "kill -STOP $$"}) {
    const Outcome outcome = RunShells(Shells(3, "[ $RANK = 2 ] && exit 4; " + deaf));
    EXPECT_EQ(outcome.status, 4);
    EXPECT_TRUE(Has(outcome.err, "ranks 0, 1 are killed")) << outcome.err;
    EXPECT_GE(outcome.seconds, 0.6);
    EXPECT_LT(outcome.seconds, 5);
  }
}

TEST(ProcessGroup, AKilledRankIsNamedWithTheCause) {
  const Outcome outcome = RunShells(Shells(2, "[ $RANK = 1 ] && kill -9 $$; sleep 0.1; exit 7"));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(Has(outcome.err,
                  "marea: rank 1 was killed by signal 9 (SIGKILL): out of memory is the usual "
                  "cause, see dmesg\n"))
      << outcome.err;
  EXPECT_FALSE(Has(outcome.err, "status 7")) << "a consequence, not the cause";
}

TEST(ProcessGroup, SignalsReachEveryRankOnce) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    SendLater(number, 1);
    const Outcome outcome =
        RunShells(Shells(3,
                         "trap 'echo asked' INT TERM HUP; i=0; while [ $i -lt 12 ]; do sleep 0.05; "
                         "i=$((i+1)); done"));
    EXPECT_EQ(outcome.status, 0);
    for (const std::string rank : {"0", "1", "2"}) {
      const std::string line = "[" + rank + "] asked\n";
      EXPECT_TRUE(Has(outcome.out, line)) << outcome.out << outcome.err;
      EXPECT_EQ(outcome.out.find(line), outcome.out.rfind(line)) << "twice";
    }
  }
}

TEST(ProcessGroup, AnUnhandledSignalOfTheUserIsNoFault) {
  SendLater(SIGTERM, 1);
  const Outcome outcome = RunShells(Shells(2, "exec sleep 60"));
  EXPECT_EQ(outcome.status, 128 + SIGTERM);
  EXPECT_EQ(outcome.err, "");
}

TEST(ProcessGroup, AfterTheSecondSignalNobodyLasts) {
  SendLater(SIGINT, 2);
  const Outcome outcome = RunShells(Shells(2, "trap '' INT; sleep 60"));
  EXPECT_LT(outcome.seconds, 5);
  EXPECT_TRUE(Has(outcome.err, "are killed")) << outcome.err;
}

TEST(ProcessGroup, WhatCannotBeStartedIsSaid) {
  ProcessGroupOptions options = Shells(2, "true");
  options.executable = "/nowhere/marea";
  const Outcome outcome = RunShells(options);
  EXPECT_EQ(outcome.status, 127);
  EXPECT_TRUE(Has(outcome.err, "cannot be started")) << outcome.err;
}

TEST(ProcessGroup, RanksDieWithTheLauncher) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    // Each rank holds the pipe's writing end: it closes when the last of them is gone.
    close(ends[0]);
    [[maybe_unused]] const auto status = RunRanks(Shells(2, "exec sleep 60"));
    _exit(0);
  }
  close(ends[1]);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  const auto began = Clock::now();
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 0);
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - began).count(), 5);
  close(ends[0]);
}

}  // namespace
}  // namespace marea
