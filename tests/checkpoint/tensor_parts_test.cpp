// Tensors that are divided over the files of ranks: what the files hold twice, or not at all, is refused by name.
#include "core/checkpoint/tensor_parts.h"

#include <gmock/gmock.h>

#include "consist/error.h"
#include "tests/checkpoint/saved_run.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// A rank's part of "x", a ramp of 100 numbers. `division`: the metadata's text; empty where the part is the whole.
struct Written {
  std::int64_t first, count;
  std::string division;
};

/// A checkpoint of two ranks that have written such parts.
Checkpoint checkpoint_of(const std::string& folder, const std::vector<Written>& ranks) {
  CheckpointWriter writer(folder, 2);
  const std::string partial = writer.begin(10);
  CheckpointState state = state_at(10);
  state.ranks = 2;
  state.layout = "data=2";
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Written& part = ranks[rank];
    std::vector<float> values;
    for (std::int64_t i = 0; i < part.count; ++i) values.push_back(static_cast<float>(part.first + i));
    std::map<std::string, std::string> divisions;
    if (!part.division.empty()) divisions["x"] = part.division;
    state.files.push_back(write_checkpoint_file(partial, checkpoint_file_name(static_cast<int>(rank)),
                                                std::vector{f32_source("x", Shape{part.count}, values)}, divisions));
  }
  writer.commit(state);
  return *latest_checkpoint(folder);
}

TEST(TensorParts, PartsOfAllRanksAreTheWhole) {
  const TemporaryFolder folder;
  const TensorParts parts = checkpoint_of(folder.path(), {{0, 50, "[100] data:F"}, {50, 50, "[100] data:F"}}).open_all();
  std::vector<float> values(60);
  parts.read("x", DType::f32, 30, 60, values.data());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<float>(30 + i));
}

TEST(TensorParts, ElementsThatAreThereTwiceAreRefused) {
  const std::vector<std::vector<Written>> files{{{0, 100, ""}, {0, 100, ""}},  // both wrote what is whole on each
                                                {{0, 100, ""}, {50, 50, "[100] data:F"}},
                                                {{0, 50, "[100] data:F"}, {0, 100, ""}}};
  for (const std::vector<Written>& ranks : files) {
    const TemporaryFolder folder;
    const Checkpoint checkpoint = checkpoint_of(folder.path(), ranks);  // each file is as it was written
    EXPECT_THAT([&] { checkpoint.open_all(); },
                ThrowsMessage<DataError>(AllOf(HasSubstr("rank-00001.safetensors"), HasSubstr("hold elements of 'x' twice"))));
  }
}

TEST(TensorParts, ElementsThatNoFileHasAreNamed) {
  const TemporaryFolder folder;
  const TensorParts parts = checkpoint_of(folder.path(), {{0, 50, "[100] data:F"}}).open_all();
  std::vector<float> values(100);
  EXPECT_NO_THROW(parts.read("x", DType::f32, 0, 50, values.data()));
  EXPECT_THAT([&] { parts.read("x", DType::f32, 40, 20, values.data()); },
              ThrowsMessage<DataError>(AllOf(HasSubstr("rank-00000.safetensors"), HasSubstr("lack element 50 of 'x'"))));
}

TEST(TensorParts, PartsThatDoNotFitTogetherAreRefused) {
  for (const std::vector<Written>& ranks :
       std::vector<std::vector<Written>>{{{0, 50, "[100] data:F"}, {50, 50, "[50,2] data:F"}},    // of another shape
                                         {{0, 50, "[100] data:F"}, {50, 40, "[100] data:F"}}}) {  // of another size
    const TemporaryFolder folder;
    const Checkpoint checkpoint = checkpoint_of(folder.path(), ranks);
    EXPECT_THAT([&] { checkpoint.open_all(); },
                ThrowsMessage<DataError>(AllOf(HasSubstr("rank-00001.safetensors"), HasSubstr("'x' does not fit the others"))));
  }
}

}  // namespace
}  // namespace consist
