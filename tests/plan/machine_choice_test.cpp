// The machine that the ranks of a job plan for, and the transports that they plan with.
#include "core/plan/machine_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "core/cost/machine_file.h"
#include "core/plan/transports.h"
#include "tests/job/in_process.h"

namespace consist {
namespace {

using testing::make_addresses;
using testing::run_ranks;

/// The machine that each of two ranks plans for, as a file; rank 0 has an H200, rank 1 an A100.
std::vector<std::string> planned_for(const std::string& named) {
  std::vector<std::string> files(2), notes(2);
  const auto errors = run_ranks(make_addresses(2), [&](JoinedJob& job) {
    const auto rank = static_cast<std::size_t>(job.rank());
    const MachineChoice choice = agree_on_machine(job, {.kind = "cuda", .name = rank == 0 ? "NVIDIA H200" : "NVIDIA A100"}, named);
    EXPECT_EQ(choice.machine.ranks_per_node, job.local_size());
    files[rank] = to_json(choice.machine);
    job.leave(std::chrono::seconds(20));
  });
  for (const auto& error : errors) EXPECT_EQ(error, nullptr);
  return files;
}

TEST(AgreeOnMachine, AllRanksPlanForRankZerosDevice) {
  const std::vector<std::string> files = planned_for("");
  EXPECT_EQ(files[0], files[1]);
  EXPECT_EQ(machine_from_json(files[1], "rank 1's").name, "h200");
}

TEST(AgreeOnMachine, OrForTheOneThatIsNamed) {
  const std::vector<std::string> files = planned_for("l40s,network=3e9");
  EXPECT_EQ(files[0], files[1]);
  EXPECT_EQ(machine_from_json(files[1], "rank 1's").network.curves.back().rates.back().rate, 3e9);
}

TEST(AgreeOnMachine, AllRanksPlanWithTheTransportsThatRankZeroChooses) {
  std::vector<AutomaticTransports> chosen(2);
  std::vector<std::unique_ptr<PluginHost>> hosts;
  for (int rank = 0; rank < 2; ++rank)
    hosts.push_back(std::make_unique<PluginHost>(std::vector<std::string>{CONSIST_BINARY_DIR "/lib/consist/plugins"}));
  const auto errors = run_ranks(make_addresses(2), [&](JoinedJob& job) {
    const auto rank = static_cast<std::size_t>(job.rank());
    // Rank 1 alone would find nothing for its device.
    chosen[rank] = agree_on_transports(job, {}, *hosts[rank], rank == 0 ? "cpu" : "abacus");
    job.leave(std::chrono::seconds(20));
  });
  for (const auto& error : errors) EXPECT_EQ(error, nullptr);
  EXPECT_THAT(chosen[0].names, ::testing::ElementsAre("socket", "socket"));
  EXPECT_EQ(chosen[1].names, chosen[0].names);
}

}  // namespace
}  // namespace consist
