// Parameters that files hold in several tensors.
#include "core/weights/stored_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "consist/error.h"
#include "tests/temporary_folder.h"
#include "tests/weights/sources.h"

namespace consist {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> names_of(const std::vector<StoredPart>& parts) {
  std::vector<std::string> names;
  for (const StoredPart& part : parts) names.push_back(part.name + " " + part.shape.text() + " " + std::to_string(part.first));
  return names;
}

TEST(StoredParts, NamesStandForTensors) {
  EXPECT_THAT(names_of(stored_parts("model.norm.weight", {4})), ElementsAre("model.norm.weight [4] 0"));
  EXPECT_THAT(names_of(stored_parts("a.*.down.weight", {2, 3, 4})),
              ElementsAre("a.0.down.weight [3,4] 0", "a.1.down.weight [3,4] 12"));
  EXPECT_THAT(
      names_of(stored_parts("a.*.{gate,up}.weight", {2, 6, 4})),
      ElementsAre("a.0.gate.weight [3,4] 0", "a.0.up.weight [3,4] 12", "a.1.gate.weight [3,4] 24", "a.1.up.weight [3,4] 36"));
  EXPECT_THROW(stored_parts("a.*.weight", {2}), ProgramError);
  EXPECT_THROW(stored_parts("a.*.{gate,up}.weight", {2, 5, 4}), ProgramError);
}

TEST(StoredParts, AreReadAndWrittenAsOneParameter) {
  const TemporaryFolder folder;
  std::vector<float> values(2 * 6 * 4);
  std::iota(values.begin(), values.end(), 1.0F);
  const std::string name = "a.*.{gate,up}.weight";
  const TensorSource whole = f32_source(name, {2, 6, 4}, values);
  write_model_weights(folder.path(), split_into_parts(whole), 100, false);  // in several files
  const ModelWeights weights(folder.path());
  EXPECT_THAT(weights.names(), ElementsAre("a.0.gate.weight", "a.0.up.weight", "a.1.gate.weight", "a.1.up.weight"));
  const std::vector<StoredPart> parts = stored_parts(name, {2, 6, 4});
  for (const auto& [first, count] : {std::pair<std::int64_t, std::size_t>{0, 48}, {0, 1}, {11, 2}, {12, 12}, {5, 40}, {47, 1}}) {
    std::vector<float> read(count);
    read_parts(weights, parts, first, read);
    EXPECT_EQ(read, std::vector<float>(values.begin() + first, values.begin() + first + static_cast<std::ptrdiff_t>(count)))
        << first << " " << count;
  }
}

}  // namespace
}  // namespace consist
