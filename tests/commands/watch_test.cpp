// consist watch: what it draws, what keys do, when it ends; and the command on a terminal and without one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "consist/error.h"
#include "launch/view/watch/frame.h"
#include "launch/view/watch/watched_runs.h"
#include "tests/child_process.h"
#include "tests/commands/run_archives.h"
#include "tests/temporary_folder.h"
#include "tests/terminal_process.h"

namespace consist::launch {
namespace {

using test::text_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* program = CONSIST_BINARY_DIR "/bin/consist";

RunView view(const std::string& path, const std::string& status, int done) {
  RunView run{.path = path, .status = status};
  run.config = {{"steps", 100}, {"model", "llama-tiny"}};
  for (int step = 1; step <= done; ++step) {
    run.step.push_back(step);
    run.loss.push_back(4.0 / step);
    run.seconds.push_back(1);
    run.data_seconds.push_back(0);
    run.tokens.push_back(1000);
  }
  return run;
}

TEST(WatchFrame, OfSeveralRunsIsATableWithTheCurveOfOne) {
  const std::vector<RunView> runs{view("a.h5", "running", 20), view("b.h5", "finished", 100), view("c.h5", "running", 0)};
  const ScreenSettings settings{.size = {80, 24}, .dots = Dots::ascii};
  const auto lines = frame_of(runs, {}, {.selected = 1}, settings);
  EXPECT_EQ(lines.size(), 24u);
  EXPECT_EQ(lines[0], "  RUN       STATE        STEP    LOSS  TOKENS/S  LEFT");
  EXPECT_EQ(lines[1], "  a.h5      running    20/100  0.2000    1.00 k  1:20");
  EXPECT_EQ(lines[2], "> b.h5      finished  100/100  0.0400    1.00 k");
  EXPECT_EQ(lines[3], "  c.h5      running");
  EXPECT_EQ(lines[4], "loss of b.h5");
  EXPECT_THAT(lines.back(), HasSubstr("q: quit, up and down"));
  EXPECT_THAT(text_of(frame_of(runs, {}, {.selected = 1, .whole = true}, settings)),
              HasSubstr("b.h5: finished\nmodel     llama-tiny"));
}

TEST(WatchFrame, ScrollsToTheSelectedOfManyRuns) {
  std::vector<RunView> runs;
  for (int i = 0; i < 100; ++i) runs.push_back(view("run-" + std::to_string(i) + ".h5", "running", 5));
  for (const int rows : {10, 24, 50}) {
    const auto lines = frame_of(runs, {}, {.selected = 77}, {.size = {60, rows}, .dots = Dots::ascii});
    EXPECT_EQ(lines.size(), static_cast<std::size_t>(rows));
    EXPECT_THAT(text_of(lines), AllOf(HasSubstr("> run-77.h5"), HasSubstr("loss of run-77.h5")));
    for (const std::string& line : lines) EXPECT_LT(width_of(line), 60) << line;
  }
}

TEST(WatchFrame, ShortensNamesFromTheirBeginning) {
  const std::vector<RunView> runs{view("a/very/long/folder/that/nobody/can/read/on/a/small/terminal/first.h5", "running", 20),
                                  view("b.h5", "running", 20)};
  const auto lines = frame_of(runs, {}, {}, {.size = {60, 24}, .dots = Dots::ascii});
  EXPECT_THAT(lines[1], AllOf(HasSubstr("> .."), HasSubstr("/first.h5  running  20/100")));
}

TEST(WatchFrame, SaysWhatIsMissing) {
  const std::vector<std::string> missing{"later.h5"};
  EXPECT_THAT(text_of(frame_of({}, missing, {}, {})), HasSubstr("later.h5: is not there yet"));
  EXPECT_THAT(text_of(frame_of({}, {}, {}, {})), HasSubstr("no run has begun yet"));
}

TEST(WatchKeys, ChooseARunAndQuit) {
  WatchState state;
  EXPECT_TRUE(take_keys("\033[B\033[Bx", 3, state));
  EXPECT_EQ(state.selected, 2u);
  EXPECT_TRUE(take_keys("jj", 3, state));
  EXPECT_EQ(state.selected, 2u) << "there is no fourth";
  EXPECT_TRUE(take_keys("k\033OA\033[A\r", 3, state));
  EXPECT_EQ(state.selected, 0u);
  EXPECT_TRUE(state.whole);
  EXPECT_FALSE(take_keys("jq", 3, state));
  EXPECT_FALSE(take_keys("\004", 3, state));
}

class Watch : public ::testing::Test {
 protected:
  std::string path() const { return folder_ / "run.h5"; }
  TemporaryFolder folder_;
};

TEST_F(Watch, AFileMayAppearInTimeAndEndsWithItsRun) {
  WatchedRuns runs({path()}, 5, 0);
  runs.refresh(1);
  EXPECT_THAT(runs.missing(), ElementsAre(path()));
  EXPECT_FALSE(runs.ended(1));
  const auto archive = test::write_run(path(), {.done = 2});
  runs.refresh(2);
  ASSERT_EQ(runs.runs().size(), 1u);
  EXPECT_EQ(runs.runs()[0].done(), 2);
  archive->append(test::row_of({}, 3));
  runs.refresh(3);
  EXPECT_EQ(runs.runs()[0].done(), 3) << "a step that was made meanwhile";
  EXPECT_FALSE(runs.ended(100));
  test::finish_run(*archive);
  runs.refresh(101);
  EXPECT_TRUE(runs.ended(101));
}

TEST_F(Watch, AFileThatDoesNotAppearIsAnError) {
  WatchedRuns runs({path()}, 5, 0);
  runs.refresh(4.9);
  try {
    runs.refresh(5);
    ADD_FAILURE();
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("there is no archive " + path()), HasSubstr("nor did it appear in 5.0 s")));
  }
}

TEST_F(Watch, AFolderGoesOnUntilNoRunBeginsAnyMore) {
  write_whole(folder_ / "comparison.h5", "not an archive of a run");
  write_whole(folder_ / "run.log", "no archive at all");
  WatchedRuns runs({folder_.path().string()}, 60, 0);
  runs.refresh(0);
  EXPECT_TRUE(runs.runs().empty());
  const auto first = test::write_run(folder_ / "b.h5", {.done = 2});
  runs.refresh(50);
  test::finish_run(*first);
  runs.refresh(51);
  EXPECT_FALSE(runs.ended(109)) << "the next one may begin";
  EXPECT_TRUE(runs.ended(110.5));
  const auto second = test::write_run(folder_ / "a.h5", {.done = 2});
  runs.refresh(111);
  ASSERT_EQ(runs.runs().size(), 2u);
  EXPECT_EQ(runs.runs()[0].path, folder_ / "a.h5");
  EXPECT_FALSE(runs.ended(500));
}

// Training and watching at once, as in two windows.
TEST_F(Watch, OnATerminalItFollowsARunToItsEnd) {
  test::TerminalProcess watch({program, "watch", path(), "--wait", "60", "--interval", "0.1"}, {{"TERM", "xterm"}}, -1, 90);
  watch.wait_for("is not there yet", std::chrono::seconds(30));
  test::TerminalProcess train({program, "train", "--model", "llama-tiny", "--dataset", "synthetic", "--sequence", "32", "--batch",
                               "1", "--steps", "80", "--ranks", "2", "--archive", path(), "--evaluate-every", "40"});
  EXPECT_EQ(watch.wait(std::chrono::seconds(120)), 0);
  EXPECT_EQ(train.wait(std::chrono::seconds(30)), 0);
  const std::string& output = watch.output();
  const std::size_t end = output.rfind("\033[?1049l");
  ASSERT_NE(end, std::string::npos);
  EXPECT_THAT(output.substr(0, end), AllOf(HasSubstr("run.h5: running"), HasSubstr("left\033[K"), HasSubstr("q: quit")));
  EXPECT_THAT(output.substr(end), AllOf(HasSubstr("run.h5: finished"), HasSubstr("step 80/80, 100%"), HasSubstr("after step 80"),
                                        HasSubstr("loss (nat/token)")));
}

TEST_F(Watch, KeysAndTheSizeOfTheTerminalReachIt) {
  const auto archive = test::write_run(path(), {});  // goes on as long as the test
  test::TerminalProcess watch({program, "watch", path(), "--interval", "60"}, {{"TERM", "xterm"}}, -1, 90);
  watch.wait_for("q: quit", std::chrono::seconds(30));
  EXPECT_THAT(watch.output(), AllOf(HasSubstr("\033[?1049h"), HasSubstr("step 60/100"), Not(HasSubstr("tokens/s\033[K"))));
  watch.resize(160, 40);
  watch.wait_for("tokens/s\033[K", std::chrono::seconds(30));  // the second curve, though no look at the file is due
  watch.type("q");
  EXPECT_EQ(watch.wait(std::chrono::seconds(30)), 0);
  EXPECT_THAT(watch.output(), ::testing::EndsWith("\033[?25h\033[?1049l")) << "the terminal is given back";
}

TEST_F(Watch, ASignalEndsItAndGivesTheTerminalBack) {
  const auto archive = test::write_run(path(), {});
  test::TerminalProcess watch({program, "watch", path()}, {{"TERM", "xterm"}}, -1, 90);
  watch.wait_for("q: quit", std::chrono::seconds(30));
  watch.signal(SIGTERM);
  EXPECT_EQ(watch.wait(std::chrono::seconds(30)), 128 + SIGTERM);
  EXPECT_THAT(watch.output(), ::testing::EndsWith("\033[?25h\033[?1049l"));
}

TEST_F(Watch, WithoutATerminalItPrintsLinesOfNews) {
  const auto archive = test::write_run(path(), {.done = 3});
  test::ChildResult result;
  std::thread watching([&] { result = test::run_child({program, "watch", path(), "--interval", "0.1"}); });
  std::this_thread::sleep_for(std::chrono::seconds(1));
  archive->append(test::row_of({}, 4));
  archive->finish("failed", "the disk is full");
  watching.join();
  EXPECT_EQ(result.status, 1) << "a run failed";
  EXPECT_THAT(result.output, AllOf(HasSubstr("run.h5: step 3/100  loss 3.9596  2.00 k tokens/s"),
                                   HasSubstr("run.h5: failed: the disk is full  step 4/100"), Not(HasSubstr("\033"))));
}

TEST_F(Watch, WhatHasEndedIsShownAtOnce) {
  const auto archive = test::write_run(path(), {.done = 100});
  test::finish_run(*archive);
  const auto result = test::run_child({program, "watch", path()});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("run.h5: finished  step 100/100"));
}

TEST_F(Watch, RefusesWhatItCannotWatch) {
  for (const auto& [words, status, says] :
       {std::tuple{std::vector<std::string>{program, "watch"}, 2, "no archive is named"},
        {{program, "watch", path()}, 1, "give --wait SECONDS if its run has not begun yet"},
        {{program, "watch", path(), "--interval", "0"}, 2, "--interval is '0'; it must be from 0.1 to 86400"},
        {{program, "watch", path(), "--follow"}, 2, "has no option '--follow'"}}) {
    const auto result = test::run_child(words);
    EXPECT_EQ(result.status, status) << result.output;
    EXPECT_THAT(result.output, HasSubstr(says));
  }
}

}  // namespace
}  // namespace consist::launch
