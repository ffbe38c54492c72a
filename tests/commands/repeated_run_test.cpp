// A run that is repeated by --config: that of an archive, of a file in part, and of what --print-config wrote.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/archive/reader.h"
#include "tests/child_process.h"
#include "tests/commands/config_file_case.h"

namespace consist {
namespace {

using test::host;
using ::testing::Contains;
using ::testing::HasSubstr;

class Repeated : public test::ConfigFileTest {
 protected:
  test::ChildResult consist(std::vector<std::string> words) const {
    words.insert(words.begin(), CONSIST_BINARY_DIR "/bin/consist");
    return test::run_child(words);
  }
  const std::vector<std::string> small_{
      "train", "--model", "llama-tiny", "--device", "cpu", "--cpu.threads", "1",   "--dataset",    "synthetic", "--sequence",
      "8",     "--batch", "1",          "--steps",  "3",   "--schedule",    "wsd", "--wsd.warmup", "1"};
};

TEST_F(Repeated, AnArchivesRunIsRepeated) {
  std::vector<std::string> first = small_;
  first.insert(first.end(), {"--archive", folder_ / "first.h5", "--checkpoint", folder_ / "ck"});
  const test::ChildResult made = consist(first);
  ASSERT_EQ(made.status, 0) << made.output;
  const test::ChildResult again = consist({"train", "--config", folder_ / "first.h5", "--archive", folder_ / "second.h5"});
  ASSERT_EQ(again.status, 0) << again.output;
  EXPECT_THAT(again.output, HasSubstr("not taken over is where that run wrote its results: --checkpoint"));
  const ArchiveReader a(folder_ / "first.h5"), b(folder_ / "second.h5");
  EXPECT_EQ(a.column("loss"), b.column("loss"));
  EXPECT_EQ(a.column("learning_rate"), b.column("learning_rate"));
  EXPECT_THAT(consist({"train", "--config", folder_ / "none.h5"}).output, HasSubstr("none.h5"));
}

TEST_F(Repeated, OptionsOfAPartThatTheCommandLineReplacesGoWithIt) {
  const std::string path = file("run.toml",
                                "model = 'llama-tiny'\nranks = 2\nstrategy = 'zero2'\noptimizer = 'lion'\n"
                                "[zero2]\nstage = 1\n[lion]\nbeta1 = 0.8\n");
  EXPECT_EQ(config_of(path).plugin_options.at("zero2").at("stage"), "1");
  const RunConfig c = config_of(path, {"--strategy", "ddp", "--optimizer", "adamw"});
  EXPECT_FALSE(c.plugin_options.contains("zero2"));
  EXPECT_FALSE(c.plugin_options.contains("lion"));
  EXPECT_THAT(c.notes, Contains(HasSubstr("what it says of 'zero2' has no effect beside the command line's choices")));
  // Options that the command line itself gives to a part that is not there stay, to be refused.
  EXPECT_TRUE(config_of(path, {"--strategy", "ddp", "--zero2.stage", "2"}).plugin_options.contains("zero2"));
  // A file that contradicts itself is refused as before.
  const std::string odd = file("odd.toml", "model = 'llama-tiny'\nstrategy = 'ddp'\n[zero2]\nstage = 1\n");
  EXPECT_TRUE(config_of(odd).plugin_options.contains("zero2"));
}

TEST_F(Repeated, AnArchiveCanBeCompared) {
  std::vector<std::string> first = small_;
  first.insert(first.end(), {"--ranks", "2", "--strategy", "zero2", "--zero2.stage", "1", "--archive", folder_ / "first.h5"});
  const test::ChildResult made = consist(first);
  ASSERT_EQ(made.status, 0) << made.output;
  const test::ChildResult same = consist({"compare", "--config", folder_ / "first.h5", "--predict", "--machine", "cpu"});
  EXPECT_EQ(same.status, 0) << same.output;
  const test::ChildResult other =
      consist({"compare", "--config", folder_ / "first.h5", "--strategy", "ddp,zero3-offload", "--predict", "--machine", "cpu"});
  EXPECT_EQ(other.status, 0) << other.output;
  EXPECT_THAT(other.output, HasSubstr("what it says of 'zero2' has no effect"));
}

TEST_F(Repeated, ThePrintedConfigurationIsThatOfTheRun) {
  std::vector<std::string> words = small_;
  words.push_back("--print-config");
  const test::ChildResult printed = consist(words);
  ASSERT_EQ(printed.status, 0) << printed.output;
  const RunConfig c = config_of(file("printed.toml", printed.output));
  words.pop_back();
  words.erase(words.begin());
  EXPECT_EQ(c.to_json(), make_config(parse_run(words), host()).to_json());
}

}  // namespace
}  // namespace consist
