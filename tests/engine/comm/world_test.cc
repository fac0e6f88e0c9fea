// Which rank a process is, from every launcher's variables.

#include "engine/comm/world.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace marea {
namespace {

using Set = std::map<std::string, std::string>;

Result<World> From(const Set& set) {
  return WorldFromVariables([&](const std::string& name) -> std::optional<std::string> {
    const auto found = set.find(name);
    if (found == set.end()) return std::nullopt;
    return found->second;
  });
}

const Set kTorchrun = {{"RANK", "5"},
                       {"WORLD_SIZE", "8"},
                       {"LOCAL_RANK", "1"},
                       {"LOCAL_WORLD_SIZE", "4"},
                       {"MASTER_ADDR", "gpu1"},
                       {"MASTER_PORT", "29500"},
                       {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                       {"TORCHELASTIC_RESTART_COUNT", "2"}};

const Set kSlurm = {{"SLURM_PROCID", "5"},
                    {"SLURM_STEP_ID", "0"},
                    {"SLURM_NTASKS", "7"},
                    {"SLURM_LOCALID", "1"},
                    {"SLURM_NODEID", "2"},
                    {"SLURM_TASKS_PER_NODE", "2(x2),3"},
                    {"SLURM_JOB_NODELIST", "gpu[07-09]-ib,x"},
                    {"SLURM_JOB_ID", "4000123"}};

Set With(Set set, const std::string& name, const std::string& value) {
  set[name] = value;
  return set;
}

Set Without(Set set, const std::string& name) {
  set.erase(name);
  return set;
}

TEST(World, OneRankWithoutALauncher) {
  const World world = From({{"MASTER_ADDR", "gpu1"}, {"LOCAL_RANK", "3"}}).value();
  EXPECT_EQ(1u, world.size);
  EXPECT_EQ(0u, world.rank);
  EXPECT_EQ(0u, world.local_rank);
}

TEST(World, ReadsTorchrun) {
  const World world = From(kTorchrun).value();
  EXPECT_EQ(5u, world.rank);
  EXPECT_EQ(8u, world.size);
  EXPECT_EQ(1u, world.local_rank);
  EXPECT_EQ(4u, world.local_size);
  EXPECT_EQ("gpu1", world.master_address);
  EXPECT_EQ(29500, world.master_port);
  EXPECT_EQ(2u, world.restart);
  EXPECT_TRUE(world.agent_store);
  EXPECT_FALSE(From(With(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "False")).value().agent_store);
  EXPECT_FALSE(From(Without(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE")).value().agent_store);
}

TEST(World, TorchrunOfOneRankNeedsNoPort) {
  const World world = From({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).value();
  EXPECT_EQ(1u, world.size);
}

TEST(World, TorchrunWinsOverSlurm) {
  Set both = kSlurm;
  both.insert(kTorchrun.begin(), kTorchrun.end());
  EXPECT_EQ(8u, From(both).value().size);
}

TEST(World, ReadsSlurm) {
  const World world = From(kSlurm).value();
  EXPECT_EQ(5u, world.rank);
  EXPECT_EQ(7u, world.size);
  EXPECT_EQ(1u, world.local_rank);
  EXPECT_EQ(3u, world.local_size);
  EXPECT_EQ("gpu07-ib", world.master_address);
  EXPECT_GE(world.master_port, 15000);
  EXPECT_LT(world.master_port, 30000);
  EXPECT_FALSE(world.agent_store);
  // Ranks of one job meet at one port, other jobs elsewhere.
  const uint16_t port = world.master_port;
  EXPECT_EQ(port, From(With(kSlurm, "SLURM_PROCID", "6")).value().master_port);
  EXPECT_NE(port, From(With(kSlurm, "SLURM_JOB_ID", "4000124")).value().master_port);
}

TEST(World, ABatchScriptIsNoRank) {
  for (const Set& script :
       {Without(kSlurm, "SLURM_STEP_ID"), With(kSlurm, "SLURM_STEP_ID", "4294967291"),
        With(kSlurm, "SLURM_STEP_ID", "batch")}) {
    const Result<World> world = From(script);
    ASSERT_FALSE(world.ok());
    EXPECT_NE(world.status().message().find("7 tasks"), std::string::npos);
    EXPECT_NE(world.status().message().find("srun"), std::string::npos);
    EXPECT_EQ(From(With(script, "SLURM_NTASKS", "1")).value().size, 1u);
    EXPECT_EQ(From(Without(script, "SLURM_NTASKS")).value().size, 1u);
  }
}

TEST(World, SlurmYieldsToWhatIsNamed) {
  Set set = With(With(kSlurm, "MASTER_ADDR", "10.0.0.7"), "MASTER_PORT", "29501");
  set["SLURM_STEP_NUM_TASKS"] = "6";
  set["SLURM_STEP_TASKS_PER_NODE"] = "2(x3)";
  const World world = From(set).value();
  EXPECT_EQ("10.0.0.7", world.master_address);
  EXPECT_EQ(29501, world.master_port);
  EXPECT_EQ(6u, world.size);
  EXPECT_EQ(2u, world.local_size);
}

TEST(World, ReadsSlurmsNodeLists) {
  const auto first = [](const std::string& nodes) {
    return From(With(kSlurm, "SLURM_JOB_NODELIST", nodes)).value().master_address;
  };
  EXPECT_EQ("a", first("a"));
  EXPECT_EQ("a", first("a,b[1-2]"));
  EXPECT_EQ("b1", first("b[1-2],a"));
  EXPECT_EQ("b5", first("b[5,7-9]"));
  EXPECT_EQ("r1-n003", first("r1-n[003-120]"));
}

void ExpectRefused(const Set& set, const std::string& part) {
  const Result<World> world = From(set);
  ASSERT_FALSE(world.ok()) << part;
  EXPECT_EQ(ErrorCode::kInvalidArgument, world.status().code());
  EXPECT_NE(std::string::npos, world.status().message().find(part)) << world.status().message();
}

TEST(World, NamesTheVariableAtFault) {
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    ExpectRefused(Without(kTorchrun, name), std::string(name) + " is not set");
    ExpectRefused(With(kTorchrun, name, ""), std::string(name) + " is not set");
  }
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT",
                           "TORCHELASTIC_RESTART_COUNT"}) {
    for (const char* value : {"two", "-1", "1.5", "4x", " 4", "99999999999999999999"}) {
      ExpectRefused(With(kTorchrun, name, value),
                    std::string(name) + "=" + value + " is not a whole number");
    }
  }
  ExpectRefused(With(kTorchrun, "RANK", "8"), "RANK=8 is not below WORLD_SIZE=8");
  ExpectRefused(With(kTorchrun, "WORLD_SIZE", "0"), "WORLD_SIZE=0");
  ExpectRefused(With(kTorchrun, "LOCAL_RANK", "4"), "LOCAL_RANK=4 is not below");
  ExpectRefused(With(kTorchrun, "LOCAL_WORLD_SIZE", "9"), "LOCAL_WORLD_SIZE=9");
  ExpectRefused(With(kTorchrun, "MASTER_PORT", "0"), "MASTER_PORT=0");
  ExpectRefused(With(kTorchrun, "MASTER_PORT", "65536"), "MASTER_PORT=65536");
  for (const char* name : {"SLURM_NTASKS", "SLURM_LOCALID", "SLURM_TASKS_PER_NODE",
                           "SLURM_JOB_NODELIST", "SLURM_JOB_ID"}) {
    ExpectRefused(Without(kSlurm, name), std::string(name) + " is");
  }
  for (const char* counts : {"2(x2", "x", "2(x2)"}) {
    ExpectRefused(With(kSlurm, "SLURM_TASKS_PER_NODE", counts), "SLURM_TASKS_PER_NODE=");
  }
}

}  // namespace
}  // namespace marea
