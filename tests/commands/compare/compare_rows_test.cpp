// The rows of a comparison: lists, labels, places, and what a run that is there already says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "consist/error.h"
#include "core/archive/archive.h"
#include "launch/compare/joined.h"
#include "launch/compare/places.h"
#include "launch/compare/rows.h"
#include "launch/compare/runs.h"
#include "tests/commands/compare/compare_outcomes.h"
#include "tests/temporary_folder.h"

namespace consist::launch {
namespace {

using test::rows_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PluginHost& host() {
  static PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  return host;
}

std::vector<std::string> values(const std::string& text, ListRule rule) {
  std::vector<std::string> all;
  for (const auto& [shown, value] : read_list("o", text, rule).values) all.push_back(value);
  return all;
}

TEST(CompareLists, CommasOfValuesHaveTheirOwnWriting) {
  EXPECT_THAT(values("1,2", ListRule::commas), ElementsAre("1", "2"));
  EXPECT_THAT(values("a=x+b=y,z", ListRule::pluses), ElementsAre("a=x,b=y", "z"));
  EXPECT_THAT(values("a.txt,b.txt", ListRule::groups), ElementsAre("a.txt,b.txt"));
  EXPECT_THAT(values("[a.txt,b.txt],[c.txt]", ListRule::groups), ElementsAre("a.txt,b.txt", "c.txt"));
  EXPECT_THAT(values("[0-9]*", ListRule::groups), ElementsAre("[0-9]*"));
  EXPECT_THAT(values("a.b=1e8,1e9", ListRule::keyed), ElementsAre("a.b=1e8", "a.b=1e9"));
  EXPECT_THAT(values("k=[0.9,0.95],[0.9,0.99]", ListRule::keyed), ElementsAre("k=[0.9,0.95]", "k=[0.9,0.99]"));
  EXPECT_THROW(values("1,,2", ListRule::commas), UsageError);
  EXPECT_THROW(values("1,1", ListRule::commas), UsageError);
}

TEST(CompareLists, EveryOptionOfTheCoreButPlacesMayBeListed) {
  PluginHost host({});
  for (const char* option :
       {"learning-rate", "seed", "steps", "schedule", "optimizer", "pack", "dataset", "transport", "deepspeed-config"})
    EXPECT_EQ(list_rule(option, host), ListRule::commas) << option;
  for (const char* option : {"checkpoint", "export", "trace", "plugin", "no-such-option"})
    EXPECT_EQ(list_rule(option, host), ListRule::single) << option;
  EXPECT_EQ(list_rule("from-scratch", host), ListRule::no_value);
  for (const char* option : {"machine", "recompute", "observe"}) EXPECT_EQ(list_rule(option, host), ListRule::pluses) << option;
  EXPECT_EQ(list_rule("zero2.stage", host), ListRule::commas);
  EXPECT_EQ(list_rule("pipeline.rank-speeds", host), ListRule::groups);
}

TEST(CompareRows, KeysOfADeepspeedFileAreSwept) {
  const std::vector<CompareRow> all = rows_of({"--model=m", "--deepspeed-set", "zero_optimization.sub_group_size=1e8,1e9",
                                               "--deepspeed-set=optimizer.params.betas=[0.9,0.95]", "--checkpoint", "c"});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].label, "m_sub_group_size1e9");
  EXPECT_EQ(label_of_repeat(all[1], 2), "m_sub_group_size1e9.repeat2");
  EXPECT_THAT(all[1].arguments, ElementsAre("--model=m", "--deepspeed-set", "zero_optimization.sub_group_size=1e9",
                                            "--deepspeed-set=optimizer.params.betas=[0.9,0.95]", "--checkpoint", "c"));
}

TEST(CompareRows, EachRunHasItsOwnPlaceForFiles) {
  RunConfig c;
  c.export_folder = "e";
  c.trace = "t/step.json";
  c.plugin_options = {{"csv", {{"file", "rows.csv"}}}, {"tensorboard", {{"folder", "tb"}}}};
  const RunConfig own = config_in_place(c, "m_batch2", host());
  EXPECT_EQ(own.export_folder, "e/m_batch2");
  EXPECT_EQ(own.trace, "t/step-m_batch2.json");
  EXPECT_EQ(own.plugin_options.at("csv").at("file"), "rows-m_batch2.csv");
  EXPECT_EQ(own.plugin_options.at("tensorboard").at("folder"), "tb/m_batch2");
  EXPECT_EQ(own.checkpoint, "") << "the run has none";
  EXPECT_EQ(config_in_place(c, "", host()).to_json(), c.to_json());
}

TEST(CompareRows, WithoutAPartItsListIsOneRow) {
  std::vector<CompareRow> all = rows_of({"--model=m", "--strategy=ddp,zero2", "--zero2.stage", "1,2"});
  ASSERT_EQ(all.size(), 4u);
  leave_out_options_of("zero2", all[0]);
  leave_out_options_of("zero2", all[1]);
  label_rows(all);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].label, "m_ddp");
  EXPECT_EQ(all[0].arguments, (std::vector<std::string>{"--model=m", "--strategy=ddp"}));
  EXPECT_EQ(all[0].varied.back().second, no_such_option);
  EXPECT_EQ(all[2].label, "m_zero2_zero2.stage2");
}

TEST(CompareRows, OptionsOfAPartAreTakenOut) {
  CompareRow row{{}, {"--model", "m", "--efa.provider", "tcp", "--efa.flag", "--efa.x=1", "--ranks", "2"}, "m"};
  leave_out_options_of("efa", row);
  EXPECT_EQ(row.arguments, (std::vector<std::string>{"--model", "m", "--ranks", "2"}));
}

TEST(CompareRuns, AReasonHasAllItsLines) {
  Reason reason;
  for (const char* line : {"step 1/2", "consist: no such thing. There are:", "  a", "  b", "[rank 1] consist: the same", "  c"})
    reason.add(line);
  EXPECT_EQ(reason.text(2), "no such thing. There are:\n  a\n  b");
  Reason killed;
  killed.add("step 1/2");
  EXPECT_THAT(killed.text(137), HasSubstr("ended by signal 9 (Killed); its last line: step 1/2"));
}

/// A finished run of ten steps.
void write_run(const std::string& path, const std::string& config, const std::string& environment, double seconds) {
  Archive archive(path, true);
  archive.text("/config", config);
  archive.define_steps({{"step", "1", ""}, {"loss", "1", ""}, {"seconds", "s", ""}, {"tokens", "1", ""}});
  archive.text("/environment", environment);
  for (int step = 1; step <= 10; ++step) archive.append(std::vector<double>{static_cast<double>(step), 2.5, seconds, 100});
  archive.text("/result", R"({"planned_bytes": 1, "measured_peak_bytes": 1, "share_of_bound": 0.5})");
  archive.finish("finished", "");
}

TEST(CompareRuns, SayWhatTheyWouldReplace) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  write_run(path, R"({"steps": 10, "model": "m"})", "{}", 1);
  EXPECT_EQ(other_run(path, R"({"model": "m", "steps": 10})", host()), "");
  EXPECT_EQ(other_run(path, R"({"steps": 6, "model": "m"})", host()), "a finished run with steps 10 (here 6)");
  EXPECT_EQ(other_run(folder / "none.h5", "{}", host()), "");
  write_run(path, R"({"model": "m", "plugin_options": {"ddp": {"bucket-size": "1Mi"}}})", "{}", 1);
  EXPECT_TRUE(is_done(path, R"({"model": "m", "plugin_options": {"ddp": {"bucket-size": "1048576"}}})", host()))
      << "the same size";
  EXPECT_FALSE(is_done(path, R"({"model": "m", "plugin_options": {"ddp": {"bucket-size": "1M"}}})", host()));
}

TEST(CompareJoined, MachinesAreAColumnAndConditionsAreSaid) {
  const TemporaryFolder folder;
  write_run(folder / "a1.h5", R"({"model": "m", "batch": 4, "steps": 10, "archive": "x"})",
            R"({"device": "A100", "driver": "1"})", 1.0);
  write_run(folder / "a2.h5", R"({"model": "m", "batch": 4, "steps": 10, "archive": "y"})",
            R"({"device": "A100", "driver": "1"})", 1.01);
  write_run(folder / "b1.h5", R"({"model": "m", "batch": 4, "steps": 10})", R"({"device": "H200", "driver": "2"})", 0.5);
  write_run(folder / "b2.h5", R"({"model": "m", "batch": 4, "steps": 10})", R"({"device": "H200", "driver": "2"})", 0.49);
  write_run(folder / "c.h5", R"({"model": "m", "batch": 4, "steps": 12})", R"({"device": "H200", "driver": "2"})", 0.5);
  std::vector<CompareRow> rows;
  std::vector<CompareOutcome> outcomes;
  join_archives({folder / "a1.h5", folder / "a2.h5", folder / "b1.h5", folder / "b2.h5", folder / "c.h5"}, rows, outcomes);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].varied,
            (std::vector<std::pair<std::string, std::string>>{{"model", "m"}, {"machine", "A100"}, {"label", rows[0].label}}))
      << "the last two rows differ in a condition only";
  EXPECT_EQ(outcomes[0].runs.size(), 2u) << "runs of one configuration on one machine are repeats";
  EXPECT_NEAR(outcomes[1].speed.mean, 202, 0.1);
  const std::string conditions = conditions_text(rows, outcomes, true);
  EXPECT_THAT(conditions, HasSubstr("driver: 1 ("));
  EXPECT_THAT(conditions, HasSubstr("steps: 10 ("));
  EXPECT_THAT(conditions, ::testing::Not(HasSubstr("archive")));
  EXPECT_THROW(join_archives({folder / "none.h5"}, rows, outcomes), SystemError);
}

}  // namespace
}  // namespace consist::launch
