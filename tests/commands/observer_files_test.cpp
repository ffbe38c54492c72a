// Observers csv and tensorboard: what a run writes, read by pandas and by TensorBoard itself; a run that goes on after work was
// lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "plugins/observers/tensorboard/event_file.h"
#include "tests/commands/tiny_training.h"
#include "tests/python.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ObserverFiles : public ::testing::Test {
 protected:
  /// A run with both observers and evaluations after every second step.
  test::ChildResult train(int steps, std::vector<std::string> more = {}) const {
    std::vector<std::string> words{"--steps",
                                   std::to_string(steps),
                                   "--evaluate-every",
                                   "2",
                                   "--observe",
                                   "csv,tensorboard",
                                   "--csv.file",
                                   folder_ / "run.csv",
                                   "--archive",
                                   folder_ / "run.h5",
                                   "--tensorboard.folder",
                                   folder_ / "tb",
                                   "--evaluate-sequences",
                                   "4"};
    words.insert(words.end(), more.begin(), more.end());
    const test::ChildResult result = test::train_tiny(words);
    EXPECT_EQ(result.status, 0) << result.output;
    EXPECT_THAT(result.output, Not(HasSubstr("switched off")));
    return result;
  }
  /// A run of 6 steps that lost its last two: there is a checkpoint of step 4 alone. Then 8 steps from there.
  void train_with_lost_work() const {
    const std::vector<std::string> checkpoints{"--checkpoint", folder_ / "checkpoints", "--checkpoint-every", "4"};
    train(6, checkpoints);
    int left = 0;
    for (const auto& entry : fs::directory_iterator(folder_ / "checkpoints")) {
      if (entry.path().filename().string().find("6") != std::string::npos)
        fs::remove_all(entry.path());
      else
        ++left;
    }
    ASSERT_GE(left, 1);
    std::vector<std::string> again = checkpoints;
    again.insert(again.end(), {"--resume", "--price", "2"});  // a price is no property of the run: it may differ
    EXPECT_THAT(train(8, again).output, HasSubstr("resumed after step 4"));
  }
  static void expect_python(const std::string& python, const std::string& script, const std::vector<std::string>& arguments) {
    std::vector<std::string> words{"-c", script};
    words.insert(words.end(), arguments.begin(), arguments.end());
    const PythonResult result = run_python(python, words);
    EXPECT_EQ(result.status, 0) << result.output;
  }
  TemporaryFolder folder_;
};

TEST(Crc32c, IsThatOfTheStandard) {  // RFC 3720, B.4
  EXPECT_EQ(tensorboard::crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(tensorboard::crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(tensorboard::crc32c(std::string(32, '\xff')), 0x62a8ab43U);
}

TEST_F(ObserverFiles, TensorBoardAndPandasReadWhatTheArchiveHas) {
  CONSIST_NEEDS_PYTHON(python);
  train_with_lost_work();
  expect_python(python, R"(
import sys, glob, h5py, pandas as pd, numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
folder = sys.argv[1]
with h5py.File(folder + "/run.h5") as run:
    steps = {name: column[:] for name, column in run["steps"].items()}
    evaluations = {name: column[:] for name, column in run["evaluations"].items()}
assert list(steps["step"]) == list(range(1, 9)), steps["step"]

rows = pd.read_csv(folder + "/run.csv")
for name in rows.columns:
    if name in steps: np.testing.assert_allclose(rows[name], steps[name], rtol=1e-8, err_msg=name)
assert {"step", "loss", "seconds", "tokens_per_second"} <= set(rows.columns)
assert rows["sequences"].eq(2).all()
of_evaluations = pd.read_csv(folder + "/run.evaluations.csv")
np.testing.assert_array_equal(of_evaluations["step"], [2, 4, 6, 8])
np.testing.assert_allclose(of_evaluations["loss"], evaluations["loss"], rtol=1e-8)

def read(purge):
    events = EventAccumulator(folder + "/tb", size_guidance={"scalars": 0}, purge_orphaned_data=purge)
    events.Reload()
    return events
for purge in (True, False):  # no step is there twice even for a reader that does not look for restarts
    events = read(purge)
    loss = events.Scalars("train/loss")
    assert [s.step for s in loss] == list(range(1, 9)), loss
    np.testing.assert_allclose([s.value for s in loss], steps["loss"], rtol=1e-6)
    np.testing.assert_allclose([s.value for s in events.Scalars("speed/tokens_per_second")], steps["tokens_per_second"], rtol=1e-6)
    assert [s.step for s in events.Scalars("evaluation/loss")] == [2, 4, 6, 8]
text = read(True).Tensors("run")[0].tensor_proto.string_val[0].decode()
assert "llama-tiny" in text and '"tensorboard"' in text, text
assert len(glob.glob(folder + "/tb/*")) == 2, glob.glob(folder + "/tb/*")
)",
                {folder_.path().string()});
}

TEST_F(ObserverFiles, MixturesHaveTheirBalanceLossAndLoad) {
  CONSIST_NEEDS_PYTHON(python);
  const test::ChildResult result = test::run_child({CONSIST_BINARY_DIR "/bin/consist",
                                                    "train",
                                                    "--model",
                                                    "qwen3-moe-tiny",
                                                    "--dataset",
                                                    "synthetic",
                                                    "--sequence",
                                                    "32",
                                                    "--batch",
                                                    "1",
                                                    "--steps",
                                                    "3",
                                                    "--observe",
                                                    "csv,tensorboard",
                                                    "--csv.file",
                                                    folder_ / "run.csv",
                                                    "--tensorboard.folder",
                                                    folder_ / "tb",
                                                    "--archive",
                                                    folder_ / "run.h5"});
  ASSERT_EQ(result.status, 0) << result.output;
  expect_python(python, R"(
import sys, h5py, pandas as pd, numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
folder = sys.argv[1]
with h5py.File(folder + "/run.h5") as run:
    steps = {name: column[:] for name, column in run["steps"].items()}
rows = pd.read_csv(folder + "/run.csv")
events = EventAccumulator(folder + "/tb", size_guidance={"scalars": 0})
events.Reload()
for name in ("aux_loss", "expert_load"):
    assert len(steps[name]) == 3 and (steps[name] > 0).all(), steps[name]
    np.testing.assert_allclose(rows[name], steps[name], rtol=1e-8)
    np.testing.assert_allclose([s.value for s in events.Scalars("train/" + name)], steps[name], rtol=1e-6)
)",
                {folder_.path().string()});
}

/// llama-tiny for two steps, with more options.
test::ChildResult two_steps(std::vector<std::string> words) {
  words.insert(words.end(), {"--steps", "2", "--evaluate-every", "2", "--evaluate-sequences", "4"});
  return test::train_tiny(words);
}

TEST_F(ObserverFiles, ARunThatBeginsAnewReplacesTheOneBeforeWithOverwriteAlone) {
  train(4);
  const std::string before = read_whole(folder_ / "run.csv"), evaluations = read_whole(folder_ / "run.evaluations.csv");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--observe", "csv", "--csv.file", folder_ / "run.csv"},
        {"--observe", "tensorboard", "--tensorboard.folder", folder_ / "tb", "--archive", folder_ / "not-begun.h5"}}) {
    const auto refused = two_steps(words);
    EXPECT_NE(refused.status, 0);
    EXPECT_THAT(refused.output, AllOf(HasSubstr("--overwrite"), Not(HasSubstr("step 1/"))));
  }
  EXPECT_EQ(read_whole(folder_ / "run.csv"), before);
  EXPECT_EQ(read_whole(folder_ / "run.evaluations.csv"), evaluations);
  EXPECT_FALSE(fs::exists(folder_ / "not-begun.h5")) << "a run that is refused leaves no archive";
  train(2, {"--overwrite"});
  EXPECT_THAT(read_whole(folder_ / "run.csv"), AllOf(HasSubstr("\n2,"), Not(HasSubstr("\n3,"))));
  EXPECT_THAT(read_whole(folder_ / "run.evaluations.csv"), AllOf(HasSubstr("\n2,"), Not(HasSubstr("\n4,"))));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "tb"), fs::directory_iterator()), 1);
}

TEST_F(ObserverFiles, PipesDevicesAndLinksStayWhatTheyAre) {
  fs::create_symlink("/dev/full", folder_ / "full");
  fs::create_symlink("rows.csv", folder_ / "link.csv");
  write_whole(folder_ / "rows.csv", "");
  const auto full = two_steps({"--observe", "csv", "--csv.file", folder_ / "full"});
  EXPECT_THAT(full.output, HasSubstr("No space left"));
  EXPECT_EQ(fs::read_symlink(folder_ / "full"), "/dev/full");
  EXPECT_EQ(fs::status("/dev/full").type(), fs::file_type::character);
  const auto link = two_steps({"--observe", "csv", "--csv.file", folder_ / "link.csv", "--overwrite"});
  EXPECT_EQ(link.status, 0) << link.output;
  EXPECT_EQ(fs::read_symlink(folder_ / "link.csv"), "rows.csv");
  EXPECT_THAT(read_whole(folder_ / "rows.csv"), HasSubstr("\n2,"));
  const auto printed = two_steps({"--observe", "csv", "--csv.file", "/dev/stdout"});
  EXPECT_EQ(printed.status, 0) << printed.output;
  EXPECT_THAT(printed.output, HasSubstr("step,loss,grad_norm"));
}

TEST_F(ObserverFiles, EventsThatAKilledRunLeftInHalfAreCutOff) {
  const std::string path = folder_ / "events.out.tfevents.1.h.1.consist";
  {
    tensorboard::EventFile file(path);
    for (int step = 1; step <= 3; ++step) file.scalars(1, step, {{"loss", 1.0}});
  }
  const std::string whole = read_whole(path);
  for (std::size_t cut = 1; cut < 20; ++cut) {
    write_whole(path, whole.substr(0, whole.size() - cut));
    tensorboard::cut_back(path, 10);
    EXPECT_LT(read_whole(path).size(), whole.size() - cut) << "the rest of step 3 is gone";
    const std::string two = read_whole(path);
    tensorboard::cut_back(path, 2);
    EXPECT_EQ(read_whole(path), two) << "steps 1 and 2 are left";
  }
  write_whole(path, whole);
  tensorboard::cut_back(path, 3);
  EXPECT_EQ(read_whole(path), whole);
  write_whole(path, "this is no file of events at all");
  EXPECT_THROW(tensorboard::cut_back(path, 1), std::exception);
  EXPECT_EQ(read_whole(path), "this is no file of events at all");
}

TEST_F(ObserverFiles, ALastRowWithoutItsEndIsTakenOut) {
  const std::vector<std::string> checkpoints{"--checkpoint", folder_ / "checkpoints", "--checkpoint-every", "4"};
  train(4, checkpoints);
  const std::string whole = read_whole(folder_ / "run.csv");
  write_whole(folder_ / "run.csv", whole + "5,2.1,0.");  // as a kill in the middle of a write leaves it
  std::vector<std::string> again = checkpoints;
  again.emplace_back("--resume");
  train(5, again);
  const std::string text = read_whole(folder_ / "run.csv");
  EXPECT_TRUE(text.starts_with(whole));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6);
}

TEST_F(ObserverFiles, WhatCannotBeWrittenIsRefusedBeforeTraining) {
  for (const auto& [words, says] :
       {std::pair{std::vector<std::string>{"--observe", "csv"}, "--csv.file is not given"},
        {{"--observe", "tensorboard"}, "--tensorboard.folder is not given"},
        {{"--observe", "csv", "--csv.file", folder_ / "none/run.csv"}, "make it first"},
        {{"--observe", "csv", "--csv.file", folder_.path().string()}, "is a folder; name a file in it"}}) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--steps", "2"});
    const auto result = test::train_tiny(all);
    EXPECT_NE(result.status, 0);
    EXPECT_THAT(result.output, AllOf(HasSubstr(says), Not(HasSubstr("step 1/"))));
  }
}

TEST_F(ObserverFiles, AFileOfOtherColumnsIsNotChanged) {
  const std::vector<std::string> more{"--checkpoint", folder_ / "checkpoints", "--observe", "csv",
                                      "--csv.file",   folder_ / "run.csv",     "--steps"};
  std::vector<std::string> first = more, second = more;
  first.emplace_back("2");
  EXPECT_EQ(test::train_tiny(first).status, 0);
  write_whole(folder_ / "run.csv", "a,b\n1,2\n");
  second.insert(second.end(), {"3", "--resume"});
  const auto result = test::train_tiny(second);
  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.output, AllOf(HasSubstr("does not begin with the columns"), Not(HasSubstr("step 3/"))));
  EXPECT_EQ(read_whole(folder_ / "run.csv"), "a,b\n1,2\n");
}

}  // namespace
}  // namespace consist
