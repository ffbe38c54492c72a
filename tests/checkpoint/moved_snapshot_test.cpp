// Snapshots of ranks that lay otherwise: each host fetches what its ranks lack from the hosts that hold or keep it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "core/checkpoint/snapshots.h"
#include "core/checkpoint/tensor_parts.h"
#include "tests/checkpoint/saved_run.h"
#include "tests/job/in_process.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t elements = 1000;

/// Value n of step s is s + n / 1000.
float value_at(std::int64_t step, std::int64_t n) {
  return static_cast<float>(step) + static_cast<float>(n) / 1000;
}

/// A job whose ranks share one tensor and have another one whole, as with ZeRO. Hosts have folders by number.
class MovedSnapshotTest : public ::testing::Test {
 protected:
  using Body = std::function<void(JoinedJob&, Snapshots&)>;

  /// Runs a rank on each of these hosts.
  std::vector<std::exception_ptr> run(const std::vector<int>& hosts, const Body& body) {
    for (const int host : hosts) std::filesystem::create_directories(folder_of(host));
    std::vector<JobAddress> addresses = testing::make_addresses(static_cast<int>(hosts.size()));
    std::vector<int> numbers(hosts.size());  // ranks of one host lie beside one another
    for (std::size_t rank = 1; rank < hosts.size(); ++rank)
      numbers[rank] = numbers[rank - 1] + (hosts[rank] == hosts[rank - 1] ? 0 : 1);
    testing::spread(addresses, numbers);
    return testing::run_ranks(std::move(addresses), [&](JoinedJob& job) {
      Snapshots snapshots(job, folder_of(hosts[static_cast<std::size_t>(job.rank())]));
      body(job, snapshots);
      job.leave(std::chrono::seconds(20));
    });
  }
  void run_well(const std::vector<int>& hosts, const Body& body) {
    for (const auto& error : run(hosts, body)) EXPECT_EQ(testing::text_of(error), "");
  }

  static Mesh mesh_of(const std::vector<int>& hosts) {
    return hosts.size() == 1 ? Mesh() : Mesh({{"data", static_cast<int>(hosts.size())}});
  }
  static Placements divided(const Mesh& mesh) {
    Placements placements;
    if (mesh.axes() > 0) placements[0] = Placement::flat();
    return placements;
  }
  static std::vector<LocalRange> part_of_rank(const Mesh& mesh, int rank) {
    return local_ranges(Shape{elements}, divided(mesh), mesh, rank);
  }

  /// Saves these steps: of "shared" each rank its part, and "whole" the first rank of each host.
  void save(const std::vector<int>& hosts, const std::vector<std::int64_t>& steps, bool copies = true) {
    const Mesh mesh = mesh_of(hosts);
    run_well(hosts, [&](JoinedJob& job, Snapshots& snapshots) {
      snapshots.keep_copies(copies);
      for (const std::int64_t step : steps) {
        CheckpointState state = state_at(step);
        state.layout = mesh_text(mesh);
        const std::vector<LocalRange> ranges = part_of_rank(mesh, job.rank());
        const std::int64_t first = ranges.empty() ? 0 : ranges.front().logical, count = ranges.empty() ? 0 : ranges.front().count;
        std::vector<TensorSource> sources{source("shared", step, first, count)};
        if (job.rank() == job.host_ranks().front()) sources.push_back(source("whole", step, 0, elements));
        snapshots.save(state, sources, {{"shared", part_text(Shape{elements}, divided(mesh), mesh)}});
      }
    });
  }
  static TensorSource source(const std::string& name, std::int64_t step, std::int64_t first, std::int64_t count) {
    return {name, DType::f32, Shape{count}, [=](void* to, std::int64_t from, std::int64_t number) {
              for (std::int64_t n = 0; n < number; ++n) static_cast<float*>(to)[n] = value_at(step, first + from + n);
            }};
  }

  /// Expects that ranks on these hosts find that step (-1: none), each with all that it needs. `files`: those that a host has
  /// then.
  void expect_found(const std::vector<int>& hosts, std::int64_t step) {
    const Mesh mesh = mesh_of(hosts);
    run_well(hosts, [&](JoinedJob& job, Snapshots& snapshots) {
      const std::optional<Checkpoint> found = snapshots.find(mesh_text(mesh), {"shared", "whole"});
      ASSERT_EQ(found ? found->state().step : -1, step);
      if (!found || !snapshots.is_moved()) return;
      const std::vector<LocalRange> mine = part_of_rank(mesh, job.rank());
      const Checkpoint gathered = snapshots.gather({{"shared", mine}, {"whole", {{0, 0, elements}}}});
      const TensorParts parts = gathered.open_all(true);
      for (const LocalRange& range : mine) expect_values(parts, "shared", step, range.logical, range.count);
      expect_values(parts, "whole", step, 0, elements);
      snapshots.drop_gathered();
      if (job.rank() == job.host_ranks().front()) EXPECT_FALSE(std::filesystem::exists(gathered.path()));
    });
  }
  static void expect_values(const TensorParts& parts, const std::string& name, std::int64_t step, std::int64_t first,
                            std::int64_t count) {
    std::vector<float> read(static_cast<std::size_t>(count)), expected;
    parts.read_f32(name, first, read);
    for (std::int64_t n = 0; n < count; ++n) expected.push_back(value_at(step, first + n));
    EXPECT_EQ(read, expected) << name << " from " << first;
  }

  std::string folder_of(int host) const { return folder_ / ("host" + std::to_string(host)); }
  void lose(int host) const { std::filesystem::remove_all(folder_of(host)); }

  TemporaryFolder folder_;
};

TEST_F(MovedSnapshotTest, TheOthersGoOnWithoutAnyOfThem) {
  for (const std::vector<int>& all : {std::vector<int>{0, 1}, {0, 1, 2}, {0, 1, 2, 3}, {0, 0, 1, 1, 2, 2}}) {
    for (const int lost : {1, all.back()}) {
      SCOPED_TRACE(::testing::PrintToString(all) + " without " + std::to_string(lost));
      save(all, {10, 20});
      std::vector<int> left = all;
      std::erase(left, lost);
      lose(lost);
      expect_found(left, 20);
      for (const int host : all) lose(host);
    }
  }
}

TEST_F(MovedSnapshotTest, OneThatComesFetchesWhatItNeeds) {
  save({0, 1, 2}, {10});
  expect_found({0, 1, 2, 3}, 10);
  expect_found({0, 3, 1, 2}, 10);
}

TEST_F(MovedSnapshotTest, OtherHostsInTheSamePlacesAreSeen) {
  save({0, 1, 2}, {10});
  lose(1);
  expect_found({0, 2, 3}, 10);
}

TEST_F(MovedSnapshotTest, TwoOfOnePairTakeTheirShardsWithThem) {
  save({0, 1, 2, 3}, {10});
  lose(2);
  lose(3);
  expect_found({0, 1}, -1);
}

TEST_F(MovedSnapshotTest, WithoutCopiesReplicasAreEnoughAndShardsAreNot) {
  save({0, 1, 2}, {10}, false);
  lose(2);
  expect_found({0, 1}, -1);
}

TEST_F(MovedSnapshotTest, AFileThatIsDamagedComesFromItsCopy) {
  save({0, 1, 2, 3}, {10});
  const std::string damaged = checkpoint_path(folder_of(1), 10) + "/" + checkpoint_file_name(1);
  std::string bytes = read_whole(damaged);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_whole(damaged, bytes);
  lose(3);
  expect_found({0, 1, 2}, 10);
}

TEST_F(MovedSnapshotTest, AnOlderOneIsTakenWhereTheNewestIsNotWhole) {
  save({0, 1, 2}, {10});
  // Host 0 alone has come to the end of step 20.
  std::filesystem::copy(checkpoint_path(folder_of(0), 10), checkpoint_path(folder_of(0), 20));
  CheckpointState state = Checkpoint(checkpoint_path(folder_of(0), 20)).state();
  state.step = 20;
  write_whole(checkpoint_path(folder_of(0), 20) + "/state.json", to_text(state));
  lose(2);
  expect_found({0, 1}, 10);
}

TEST_F(MovedSnapshotTest, StepsThatAreMadeAgainAreForgotten) {
  save({0, 1}, {10});
  std::filesystem::copy(checkpoint_path(folder_of(0), 10), checkpoint_path(folder_of(0), 20));
  run_well({0, 1}, [&](JoinedJob&, Snapshots& snapshots) { snapshots.forget_later(10); });
  EXPECT_THAT(steps_in(folder_of(0)), ElementsAre(10));
}

TEST_F(MovedSnapshotTest, CopiesOfFormerPairsGoWithTheFirstNewSnapshot) {
  save({0, 1, 2, 3}, {10});
  lose(3);
  expect_found({0, 1, 2}, 10);
  EXPECT_TRUE(std::filesystem::exists(folder_of(2) + "/of-rank-3"));
  save({0, 1, 2}, {20});
  EXPECT_FALSE(std::filesystem::exists(folder_of(2) + "/of-rank-3"));
  lose(1);
  expect_found({0, 2}, 20);
}

}  // namespace
}  // namespace consist
