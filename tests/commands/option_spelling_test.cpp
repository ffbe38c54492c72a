// Options of plugins in the spelling of earlier versions, which had '_' in some names: a command line is told of the new one,
// files and archives are read silently, and a plugin that spells so does not conform.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/archive/archive.h"
#include "core/archive/past.h"
#include "tests/child_process.h"
#include "tests/commands/config_file_case.h"

namespace consist::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Given = std::map<std::string, std::string>;

class OptionSpelling : public ConfigFileTest {
 protected:
  static RunConfig config_of_words(std::vector<std::string> words) {
    words.insert(words.begin(), {"--model=llama-tiny", "--strategy=zero2"});
    return make_config(parse_run(words), host());
  }
  std::string archive(const std::string& config) const {
    const std::string path = folder_ / "run.h5";
    Archive written(path, true);
    written.text("/config", config);
    written.define_steps({{"step", "1", ""}});
    written.finish("stopped", "");
    return path;
  }
};

TEST_F(OptionSpelling, OfACommandLineIsNamed) {
  const Given expected{{"offload-optimizer.device", "cpu"}, {"reduce-bucket-size", "7"}};
  const RunConfig old = config_of_words({"--zero2.reduce_bucket_size", "7", "--zero2.offload_optimizer.device=cpu"});
  EXPECT_EQ(old.plugin_options.at("zero2"), expected);
  EXPECT_THAT(old.notes,
              ElementsAre("--zero2.reduce_bucket_size is --zero2.reduce-bucket-size since version 0.1.0; the old spelling "
                          "ends with the next version",
                          HasSubstr("--zero2.offload_optimizer.device is --zero2.offload-optimizer.device since")));
  const RunConfig now = config_of_words({"--zero2.reduce-bucket-size=7", "--zero2.offload-optimizer.device=cpu"});
  EXPECT_EQ(now.plugin_options.at("zero2"), expected);
  EXPECT_THAT(now.notes, ElementsAre());
  EXPECT_THROW(config_of_words({"--zero2.reduce_bucket_size=7", "--zero2.reduce-bucket-size=8"}), UsageError) << "given twice";
}

TEST_F(OptionSpelling, OfAFileIsReadSilently) {
  const RunConfig c = config_of(file("run.toml",
                                     "model = \"llama-tiny\"\nstrategy = \"zero2\"\n[zero2]\nreduce_bucket_size = 7\n"
                                     "offload_optimizer.device = \"cpu\"\n"));
  EXPECT_EQ(c.plugin_options.at("zero2"), (Given{{"offload-optimizer.device", "cpu"}, {"reduce-bucket-size", "7"}}));
  EXPECT_THAT(c.notes, ElementsAre());
  EXPECT_EQ(config_of(file("run.toml", "model = \"llama-tiny\"\nstrategy = \"zero2\"\nzero2.reduce_bucket_size = 7\n"),
                      {"--zero2.reduce-bucket-size=8"})
                .plugin_options.at("zero2"),
            (Given{{"reduce-bucket-size", "8"}}))
      << "the command line goes before it";
}

TEST_F(OptionSpelling, OfAnArchiveIsReadSilently) {
  const std::string path = archive(
      R"({"model": "llama-tiny", "strategy": "zero2", "plugin_options": {"zero2": {"reduce_bucket_size": "7", "stage": "1"}}})");
  const RunConfig c = config_of(path);
  EXPECT_EQ(c.plugin_options.at("zero2"), (Given{{"reduce-bucket-size", "7"}, {"stage", "1"}}));
  EXPECT_THAT(c.notes, ElementsAre());
  const auto none = [](const std::string&) { return false; };
  const std::string same = R"({"model": "llama-tiny", "plugin_options": {"zero2": {"reduce-bucket-size": "7", "stage": "1"}}})";
  EXPECT_NO_THROW(check_same_run(path, same, "{}", none)) << "--resume goes on in it";
  const std::string other = R"({"model": "llama-tiny", "plugin_options": {"zero2": {"reduce-bucket-size": "8", "stage": "1"}}})";
  EXPECT_THROW(check_same_run(path, other, "{}", none), UsageError);
}

TEST_F(OptionSpelling, OfAPluginIsRefusedByCheck) {
  const ChildResult checked =
      run_child({CONSIST_BINARY_DIR "/bin/consist", "check", PNEUMATIC_TRANSPORT "/transport-pneumatic.so"});
  EXPECT_EQ(checked.status, 1) << checked.output;
  EXPECT_THAT(checked.output,
              HasSubstr("transport 'pneumatic' does not conform: its option 'tube_width' has an underscore; words of "
                        "a name are joined by '-': 'tube-width'"));
}

}  // namespace
}  // namespace consist::test
