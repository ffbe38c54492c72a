// Snapshots: checkpoints in the memory of hosts, of which each has what its ranks need.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <set>

#include "core/checkpoint/snapshots.h"
#include "core/checkpoint/tensor_parts.h"
#include "tests/checkpoint/saved_run.h"
#include "tests/job/in_process.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Runs ranks on hosts, each of which has a folder of its own that outlives them.
class SnapshotsTest : public ::testing::Test {
 protected:
  using Body = std::function<void(JoinedJob&, Snapshots&)>;

  std::vector<std::exception_ptr> run(const Body& body) {
    for (const int host : host_of_) std::filesystem::create_directory(folder_of(host));
    std::vector<JobAddress> addresses = testing::make_addresses(static_cast<int>(host_of_.size()));
    testing::spread(addresses, host_of_);
    return testing::run_ranks(std::move(addresses), [&](JoinedJob& job) {
      Snapshots snapshots(job, folder_of(host_of_[static_cast<std::size_t>(job.rank())]));
      body(job, snapshots);
      job.leave(std::chrono::seconds(20));
    });
  }
  void run_well(const Body& body) {
    for (const auto& error : run(body)) EXPECT_EQ(testing::text_of(error), "");
  }
  /// Saves these steps, with copies, the values of each rank being its own.
  void save(const std::vector<std::int64_t>& steps) {
    run_well([&](JoinedJob& job, Snapshots& snapshots) {
      EXPECT_THAT(snapshots.keep_copies(true), IsEmpty());
      for (const std::int64_t step : steps) snapshots.save(state_at(step), std::vector{source_of_rank(job.rank(), step)}, {});
    });
  }
  /// Expects that each rank finds that step, with the values that it saved; -1: that none is found.
  void expect_found(std::int64_t step) {
    run_well([&](JoinedJob& job, Snapshots& snapshots) {
      const std::optional<Checkpoint> found = snapshots.find(state_at(0).layout, {});
      ASSERT_EQ(found ? found->state().step : -1, step);
      if (!found) return;
      EXPECT_EQ(found->path(), checkpoint_path(snapshots.folder(), step));
      float value = 0;
      found->open(checkpoint_file_name(job.rank())).read_f32("x", 2, std::span(&value, 1));
      EXPECT_EQ(value, 2.0F * static_cast<float>(100 * job.rank() + step));
    });
  }
  static TensorSource source_of_rank(int rank, std::int64_t step) {
    return ramp_source("x", 100, static_cast<float>(100 * rank + step));
  }
  std::string folder_of(int host) const { return folder_ / ("host" + std::to_string(host)); }
  void lose(int host) const { std::filesystem::remove_all(folder_of(host)); }

  std::vector<int> host_of_{0, 0, 1, 1};  // by rank
  TemporaryFolder folder_;
};

TEST_F(SnapshotsTest, EachHostHasTheFilesOfItsRanks) {
  save({10, 20, 30});
  expect_found(30);
  for (const int host : {0, 1}) {
    EXPECT_THAT(steps_in(folder_of(host)), ElementsAre(30)) << "older ones are gone";
    EXPECT_EQ(Checkpoint(checkpoint_path(folder_of(host), 30)).state().files.size(), 2U);
  }
  EXPECT_THAT(steps_in(folder_of(1) + "/of-rank-0"), ElementsAre(30));
}

TEST_F(SnapshotsTest, TheOlderOnesStayUntilAllHostsHaveANewOne) {
  const auto errors = run([&](JoinedJob& job, Snapshots& snapshots) {
    snapshots.keep_copies(true);
    snapshots.save(state_at(10), std::vector{source_of_rank(job.rank(), 10)}, {});
    const TensorSource bad{"x", DType::f32, Shape{1},
                           [](void*, std::int64_t, std::int64_t) { throw SystemError("the device is gone"); }};
    snapshots.save(state_at(20), job.rank() == 3 ? std::vector{bad} : tensors_at(20), {});
  });
  EXPECT_EQ(testing::text_of(errors[3]), "the device is gone");
  expect_found(10);
}

TEST_F(SnapshotsTest, WithoutCopiesAHostWithoutOneMeansThatThereIsNone) {
  run_well([](JoinedJob& job, Snapshots& snapshots) {
    EXPECT_THAT(snapshots.keep_copies(job.rank() > 1), ElementsAre(job.host())) << "the host that lacks memory is named";
    snapshots.save(state_at(10), std::vector{source_of_rank(job.rank(), 10)}, {});
  });
  expect_found(10);
  lose(1);
  expect_found(-1);
}

TEST_F(SnapshotsTest, ALostHostGetsItsOwnBackFromItsNeighbour) {
  for (const std::vector<int>& host_of : {std::vector<int>{0, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 1, 1}, {0, 1, 0, 1, 2}, {0, 1}}) {
    SCOPED_TRACE(::testing::PrintToString(host_of));
    for (int host = 0; host <= *std::ranges::max_element(host_of); ++host) {
      host_of_ = host_of;
      save({10, 20});
      lose(host);
      expect_found(20);
      expect_found(20);  // brought back for good
      for (const int every : host_of) lose(every);
    }
  }
}

TEST_F(SnapshotsTest, WhatIsBroughtBackIsCopiedAnew) {
  save({10});
  lose(1);
  run_well([&](JoinedJob& job, Snapshots& snapshots) {
    ASSERT_TRUE(snapshots.find(state_at(0).layout, {}).has_value());
    snapshots.keep_copies(true);
    snapshots.save(state_at(20), std::vector{source_of_rank(job.rank(), 20)}, {});
  });
  lose(0);
  expect_found(20);
}

TEST_F(SnapshotsTest, OneHostOfEachPairMayBeLost) {
  host_of_ = {0, 1, 2, 3};
  save({10});
  lose(1);
  lose(2);
  expect_found(10);
  lose(2);
  lose(3);
  expect_found(-1);
}

TEST(KeeperOf, HostsArePairedAndAnOddNumberEndsInARing) {
  for (std::size_t hosts = 2; hosts < 12; ++hosts) {
    std::set<std::size_t> keepers;
    std::size_t pairs = 0;
    for (std::size_t host = 0; host < hosts; ++host) {
      const std::size_t keeper = keeper_of(host, hosts);
      ASSERT_LT(keeper, hosts);
      EXPECT_NE(keeper, host);
      EXPECT_EQ(kept_by(keeper, hosts), host);
      keepers.insert(keeper);
      if (keeper_of(keeper, hosts) == host) ++pairs;
    }
    EXPECT_EQ(keepers.size(), hosts) << "each keeps the snapshots of one";
    EXPECT_EQ(pairs, hosts % 2 == 0 ? hosts : hosts - 3) << hosts;
  }
}

TEST_F(SnapshotsTest, ADamagedOneIsNotUsed) {
  save({10});
  const std::string damaged = checkpoint_path(folder_of(1), 10) + "/" + checkpoint_file_name(3);
  std::string bytes = read_whole(damaged);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_whole(damaged, bytes);
  expect_found(-1);
}

TEST_F(SnapshotsTest, ARankThatIsGoneWhileCopiesAreMadeIsNamed) {
  const auto errors = run([&](JoinedJob& job, Snapshots& snapshots) {
    snapshots.keep_copies(true);
    snapshots.save(state_at(10), std::vector{source_of_rank(job.rank(), 10)}, {});
    const TensorSource gone{"x", DType::f32, Shape{1},
                            [](void*, std::int64_t, std::int64_t) { throw ProgramError("rank 2 is gone"); }};
    snapshots.save(state_at(20), job.rank() == 2 ? std::vector{gone} : std::vector{source_of_rank(job.rank(), 20)}, {});
  });
  for (const int rank : {0, 1, 3})
    EXPECT_THAT(testing::text_of(errors[static_cast<std::size_t>(rank)]), HasSubstr("rank 2 is gone")) << rank;
  lose(1);
  expect_found(10);
}

TEST(OwnsPartAmong, TheFirstHolderOnAHostWrites) {
  const Mesh mesh({{"data", 2}, {"tensor", 2}});  // ranks 0 1 | 2 3
  const std::vector<int> host{2, 3};
  Placements replicated, sharded;
  sharded[mesh.find("tensor")] = Placement::shard(0);
  EXPECT_FALSE(owns_part(replicated, mesh, 2));
  EXPECT_TRUE(owns_part_among(host, replicated, mesh, 2));
  EXPECT_FALSE(owns_part_among(host, replicated, mesh, 3));
  EXPECT_TRUE(owns_part_among(host, sharded, mesh, 2));
  EXPECT_TRUE(owns_part_among(host, sharded, mesh, 3)) << "another part";
  EXPECT_TRUE(owns_part_among(std::vector<int>{1, 2}, sharded, mesh, 2));
}

}  // namespace
}  // namespace consist
