// Launchers' environments as sources of a rank's place, from a table instead of the process's own variables.
#include "core/job/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "consist/error.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Table = std::map<std::string, std::string>;

JobAddress read_address(const Table& table) {
  return job_address_from_environment([&](const char* name) -> std::optional<std::string> {
    const auto found = table.find(name);
    return found == table.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

std::string complaint(const Table& table) {
  try {
    read_address(table);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no UsageError";
}

const std::string token = "0123456789abcdef";
const Table torchrun{{"RANK", "5"},        {"WORLD_SIZE", "8"},      {"LOCAL_RANK", "1"},         {"LOCAL_WORLD_SIZE", "4"},
                     {"MASTER_ADDR", "a"}, {"MASTER_PORT", "12345"}, {"CONSIST_JOB_TOKEN", token}};

Table with(Table table, const std::string& name, const std::string& value) {
  table[name] = value;
  return table;
}
Table without(Table table, const std::string& name) {
  table.erase(name);
  return table;
}

/// Rank 5, the second of the second host of four ranks each.
void expect_sixth_of_two_times_four(const JobAddress& address, const std::string& master_host, int master_port) {
  EXPECT_EQ(address.rank, 5);
  EXPECT_EQ(address.size, 8);
  EXPECT_EQ(address.local_rank, 1);
  EXPECT_EQ(address.local_size, 4);
  EXPECT_EQ(address.master_host, master_host);
  EXPECT_EQ(address.master_port, master_port);
}

TEST(Environment, NothingMeansOneRank) {
  const JobAddress address = read_address({{"HOME", "/root"}});
  EXPECT_EQ(address.rank, 0);
  EXPECT_EQ(address.size, 1);
  EXPECT_EQ(address.local_size, 1);
}

TEST(Environment, Torchrun) {
  const JobAddress address = read_address(torchrun);
  expect_sixth_of_two_times_four(address, "a", 12345);
  EXPECT_EQ(address.token, token);
  EXPECT_EQ(address.listen_fd, -1);
}

TEST(Environment, TorchrunsAgentKeepsItsPort) {
  EXPECT_EQ(read_address(with(torchrun, "TORCHELASTIC_USE_AGENT_STORE", "True")).master_port, 12346);
  EXPECT_EQ(read_address(with(torchrun, "TORCHELASTIC_USE_AGENT_STORE", "False")).master_port, 12345);
  EXPECT_EQ(read_address(with(torchrun, "CONSIST_JOB_PORT", "777")).master_port, 777);
}

TEST(Environment, OneRankNeedsNoMasterAndNoToken) {
  const JobAddress address = read_address({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(address.size, 1);
}

TEST(Environment, OnlyRankZeroTakesTheInheritedSocket) {
  Table table = with(torchrun, "CONSIST_JOB_FD", "7");
  EXPECT_EQ(read_address(table).listen_fd, -1);
  table["RANK"] = table["LOCAL_RANK"] = "0";
  EXPECT_EQ(read_address(table).listen_fd, 7);
}

TEST(Environment, TorchrunsMissingAndContradictoryParts) {
  EXPECT_THAT(complaint(without(torchrun, "WORLD_SIZE")), AllOf(HasSubstr("WORLD_SIZE is not set"), HasSubstr("torchrun")));
  EXPECT_THAT(complaint(without(torchrun, "RANK")), HasSubstr("RANK is not"));
  EXPECT_THAT(complaint(without(torchrun, "MASTER_ADDR")), HasSubstr("MASTER_ADDR is not set"));
  EXPECT_THAT(complaint(without(torchrun, "LOCAL_WORLD_SIZE")), HasSubstr("only the first is set"));
  EXPECT_THAT(complaint(with(torchrun, "RANK", "8")), HasSubstr("rank 8 in a job of 8"));
  EXPECT_THAT(complaint(with(torchrun, "LOCAL_RANK", "4")), HasSubstr("local rank 4 of 4"));
  EXPECT_THAT(complaint(with(torchrun, "RANK", "-1")), HasSubstr("RANK is '-1'"));
  EXPECT_THAT(complaint(with(torchrun, "RANK", "1x")), HasSubstr("RANK is '1x'"));
  EXPECT_THAT(complaint(with(torchrun, "WORLD_SIZE", "99999999999")), HasSubstr("WORLD_SIZE is '99999999999'"));
  EXPECT_THAT(complaint(with(torchrun, "MASTER_PORT", "65536")), HasSubstr("MASTER_PORT is '65536'"));
}

TEST(Environment, TheTokenIsRequiredAndNeverQuoted) {
  EXPECT_THAT(complaint(without(torchrun, "CONSIST_JOB_TOKEN")), HasSubstr("CONSIST_JOB_TOKEN"));
  const std::string both = complaint(with(torchrun, "CONSIST_JOB_TOKEN_FILE", "/nowhere"));
  EXPECT_THAT(both, HasSubstr("both CONSIST_JOB_TOKEN and CONSIST_JOB_TOKEN_FILE"));
  EXPECT_EQ(both.find(token), std::string::npos);
}

TEST(Environment, WithoutATokenTheErrorSaysTheLaunchersCommand) {
  EXPECT_THAT(complaint(without(torchrun, "CONSIST_JOB_TOKEN")),
              AllOf(HasSubstr("openssl rand -hex 16"), HasSubstr("CONSIST_JOB_TOKEN=THAT_TEXT torchrun")));
  const Table slurm{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "0"}, {"SLURM_STEP_NODELIST", "node[1-2]"}};
  EXPECT_THAT(complaint(slurm), AllOf(HasSubstr("export CONSIST_JOB_TOKEN=$(openssl rand -hex 16)"), HasSubstr("srun")));
  const Table mpi{{"OMPI_COMM_WORLD_RANK", "0"},
                  {"OMPI_COMM_WORLD_SIZE", "2"},
                  {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                  {"MASTER_ADDR", "node07"}};
  EXPECT_THAT(complaint(mpi), HasSubstr("mpirun -x CONSIST_JOB_TOKEN"));
  EXPECT_THAT(complaint({{"JOB_COMPLETION_INDEX", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}), HasSubstr("secretKeyRef"));
}

TEST(Environment, RanksOfOneHostAgreeOnAToken) {
  Table one_host = without(torchrun, "CONSIST_JOB_TOKEN");
  one_host["WORLD_SIZE"] = "4";
  one_host["RANK"] = "1";
  const JobAddress second = read_address(one_host);
  EXPECT_EQ(second.token, "");
  EXPECT_EQ(second.channel, TokenChannel::host);
  one_host["RANK"] = one_host["LOCAL_RANK"] = "0";
  EXPECT_EQ(read_address(one_host).start, second.start) << "equal on all ranks";
  one_host["TORCHELASTIC_RUN_ID"] = "another";
  EXPECT_NE(read_address(one_host).start, second.start);
  one_host["CONSIST_JOB_TOKEN"] = token;
  EXPECT_EQ(read_address(one_host).channel, TokenChannel::none);
}

TEST(Environment, TheTokenMayBeInAFile) {
  const auto path = std::filesystem::temp_directory_path() / ("consist_token_" + std::to_string(getpid()));
  std::ofstream(path) << token << "\n";
  const Table table = with(without(torchrun, "CONSIST_JOB_TOKEN"), "CONSIST_JOB_TOKEN_FILE", path);
  EXPECT_EQ(read_address(table).token, token);
  std::filesystem::remove(path);
  EXPECT_THROW(read_address(table), SystemError);
}

// A device that never ends and a pipe that nobody writes to are refused at once, a file that is no secret by its size.
TEST(Environment, WhatIsNoSmallFileHoldsNoToken) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::ofstream(folder / "large") << std::string(5000, 'x');
  const auto from = [](const std::string& path) -> std::string {
    try {
      read_address(with(without(torchrun, "CONSIST_JOB_TOKEN"), "CONSIST_JOB_TOKEN_FILE", path));
    } catch (const SystemError& error) {
      return error.what();
    }
    return "no SystemError";
  };
  for (const std::string& path : {std::string("/dev/zero"), folder / "pipe", folder.path().string()})
    EXPECT_THAT(from(path), AllOf(HasSubstr("CONSIST_JOB_TOKEN_FILE"), HasSubstr("cannot read " + path)));
  EXPECT_THAT(from(folder / "large"), HasSubstr("has 5000 bytes, more than the 4096 that such a file may have"));
}

TEST(Environment, OpenMpi) {
  Table table{{"OMPI_COMM_WORLD_RANK", "1"},
              {"OMPI_COMM_WORLD_SIZE", "2"},
              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
              {"CONSIST_JOB_TOKEN", token}};
  JobAddress address = read_address(table);
  EXPECT_EQ(address.rank, 1);
  EXPECT_EQ(address.local_rank, 1);
  EXPECT_EQ(address.master_host, "127.0.0.1");
  EXPECT_EQ(address.master_port, 29500);
  table["OMPI_COMM_WORLD_SIZE"] = "4";
  EXPECT_THAT(complaint(table), HasSubstr("MASTER_ADDR is not set"));
  table["MASTER_ADDR"] = "head";
  EXPECT_EQ(read_address(table).master_host, "head");
}

TEST(Environment, Kubernetes) {
  const Table table{
      {"JOB_COMPLETION_INDEX", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "set-job-0-0.set"}, {"CONSIST_JOB_TOKEN", token}};
  const JobAddress address = read_address(table);
  EXPECT_EQ(address.rank, 3);
  EXPECT_EQ(address.size, 4);
  EXPECT_EQ(address.local_rank, 0);
  EXPECT_EQ(address.local_size, 1);
  EXPECT_EQ(address.master_host, "set-job-0-0.set");
  EXPECT_THAT(complaint(without(table, "WORLD_SIZE")), HasSubstr("WORLD_SIZE"));
  EXPECT_THAT(complaint(without(table, "MASTER_ADDR")), HasSubstr("<jobset>-<job>-0-0.<jobset>"));
}

const Table slurm{{"SLURM_PROCID", "5"},
                  {"SLURM_NTASKS", "8"},
                  {"SLURM_LOCALID", "1"},
                  {"SLURM_NODEID", "1"},
                  {"SLURM_TASKS_PER_NODE", "4(x2)"},
                  {"SLURM_JOB_ID", "1000"},
                  {"SLURM_NODELIST", "gpu[07-08]"},
                  {"CONSIST_JOB_TOKEN", token}};

TEST(Environment, Slurm) {
  const JobAddress address = read_address(slurm);
  expect_sixth_of_two_times_four(address, "gpu07", 16384 + 1000);
  EXPECT_NE(read_address(with(slurm, "SLURM_STEP_ID", "1")).master_port, address.master_port);
  EXPECT_EQ(read_address(with(slurm, "MASTER_PORT", "4000")).master_port, 4000);
}

TEST(Environment, SlurmsStepWinsOverItsJob) {
  Table table = with(slurm, "SLURM_STEP_NODELIST", "gpu08,gpu11");
  table["SLURM_STEP_NUM_TASKS"] = "6";
  table["SLURM_STEP_TASKS_PER_NODE"] = "3(x2)";
  const JobAddress address = read_address(table);
  EXPECT_EQ(address.size, 6);
  EXPECT_EQ(address.local_size, 3);
  EXPECT_EQ(address.master_host, "gpu08");
}

TEST(Environment, SlurmsTasksPerNodeMayDiffer) {
  Table table = with(slurm, "SLURM_TASKS_PER_NODE", "5,3");
  EXPECT_EQ(read_address(table).local_size, 3);
  table["SLURM_TASKS_PER_NODE"] = "5;3";
  EXPECT_THAT(complaint(table), HasSubstr("'5;3'"));
}

TEST(Environment, AnInnerLauncherWins) {
  Table table = slurm;
  table.insert(torchrun.begin(), torchrun.end());
  EXPECT_EQ(read_address(table).master_host, "a");
}

TEST(Environment, SlurmNodeLists) {
  EXPECT_EQ(first_slurm_host("node1"), "node1");
  EXPECT_EQ(first_slurm_host("a,b"), "a");
  EXPECT_EQ(first_slurm_host("node[07-09,12],login1"), "node07");
  EXPECT_EQ(first_slurm_host("node[3]"), "node3");
  EXPECT_EQ(first_slurm_host("node[10,12]"), "node10");
  EXPECT_EQ(first_slurm_host("r[1-2]c[03-09]n"), "r1c03n");
  EXPECT_EQ(first_slurm_host("ip-10-0-[5-7].cluster"), "ip-10-0-5.cluster");
  for (const char* bad : {"", ",a", "node[", "node[]", "node[-3]", "node]3", "node[a-b]"}) {
    EXPECT_THROW(first_slurm_host(bad), UsageError) << bad;
  }
}

}  // namespace
}  // namespace consist
