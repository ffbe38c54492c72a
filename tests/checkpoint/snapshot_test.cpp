// Snapshots: checkpoints in the memory of hosts, of which each has what its ranks need.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>

#include "core/checkpoint/save_checkpoint.h"
#include "core/checkpoint/tensor_parts.h"
#include "tests/checkpoint/saved_run.h"
#include "tests/job/in_process.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using ::testing::ElementsAre;

/// The writer of a rank, in the folder of its host.
std::unique_ptr<CheckpointWriter> writer_of(const JoinedJob& job, const std::string& folder) {
  return job.rank() == job.host_ranks().front() ? std::make_unique<CheckpointWriter>(folder, 2) : nullptr;
}

class Snapshot : public ::testing::Test {
 protected:
  /// Runs two hosts of two ranks each.
  std::vector<std::exception_ptr> run(const std::function<void(JoinedJob&, const std::string& folder)>& body) {
    for (const char* host : {"host0", "host1"}) std::filesystem::create_directory(folder_ / host);
    return testing::run_ranks(testing::make_addresses_on_hosts(4, 2), [&](JoinedJob& job) {
      body(job, folder_ / (job.rank() < 2 ? "host0" : "host1"));
      job.leave(std::chrono::seconds(20));
    });
  }
  void expect_no_errors(const std::vector<std::exception_ptr>& errors) {
    for (const auto& error : errors) EXPECT_EQ(testing::text_of(error), "");
  }

  TemporaryFolder folder_;
};

TEST_F(Snapshot, EachHostHasTheFilesOfItsRanks) {
  expect_no_errors(run([&](JoinedJob& job, const std::string& folder) {
    const std::unique_ptr<CheckpointWriter> writer = writer_of(job, folder);
    for (const std::int64_t step : {10, 20, 30}) {
      const auto source = ramp_source("x", 100, static_cast<float>(job.rank() + step));
      save_snapshot(job, writer.get(), state_at(step), std::vector{source}, {});
    }
    const std::optional<Checkpoint> found = find_snapshot(job, folder);
    EXPECT_EQ(found.value().state().step, 30);
    EXPECT_EQ(found->state().files.size(), 2U);
    float value = 0;
    found->open(checkpoint_file_name(job.rank())).read_f32("x", 2, std::span(&value, 1));
    EXPECT_EQ(value, 2.0F * static_cast<float>(job.rank() + 30));
  }));
  for (const char* host : {"host0", "host1"}) EXPECT_THAT(steps_in(folder_ / host), ElementsAre(30)) << "older ones are gone";
}

TEST_F(Snapshot, TheOlderOnesStayUntilAllHostsHaveANewOne) {
  const auto errors = run([&](JoinedJob& job, const std::string& folder) {
    const std::unique_ptr<CheckpointWriter> writer = writer_of(job, folder);
    CheckpointWriter* const mine = writer.get();
    save_snapshot(job, mine, state_at(10), tensors_at(10), {});
    const TensorSource bad{"x", DType::f32, Shape{1},
                           [](void*, std::int64_t, std::int64_t) { throw SystemError("the device is gone"); }};
    save_snapshot(job, mine, state_at(20), job.rank() == 3 ? std::vector{bad} : tensors_at(20), {});
  });
  EXPECT_EQ(testing::text_of(errors[3]), "the device is gone");
  expect_no_errors(run([&](JoinedJob& job, const std::string& folder) {
    const std::optional<Checkpoint> found = find_snapshot(job, folder);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->state().step, 10);
  }));
}

TEST_F(Snapshot, AHostWithoutOneMeansThatThereIsNone) {
  expect_no_errors(run([&](JoinedJob& job, const std::string& folder) {
    const std::unique_ptr<CheckpointWriter> writer = writer_of(job, folder);
    save_snapshot(job, writer.get(), state_at(10), tensors_at(10), {});
  }));
  std::filesystem::remove_all(folder_ / "host1/step-00000010");
  expect_no_errors(run([&](JoinedJob& job, const std::string& folder) { EXPECT_FALSE(find_snapshot(job, folder).has_value()); }));
}

TEST_F(Snapshot, ADamagedOneIsNotUsed) {
  expect_no_errors(run([&](JoinedJob& job, const std::string& folder) {
    const std::unique_ptr<CheckpointWriter> writer = writer_of(job, folder);
    save_snapshot(job, writer.get(), state_at(10), tensors_at(10), {});
  }));
  const std::string damaged = folder_ / "host1/step-00000010/" + checkpoint_file_name(3);
  std::string bytes = read_whole(damaged);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_whole(damaged, bytes);
  expect_no_errors(run([&](JoinedJob& job, const std::string& folder) { EXPECT_FALSE(find_snapshot(job, folder).has_value()); }));
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
