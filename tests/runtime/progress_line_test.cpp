// The progress line fits the terminal that it is drawn on.
#include "core/record/progress_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/terminal_process.h"

namespace consist {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

StepReport long_report() {
  StepReport report;
  report.step = 123'456;
  report.loss = 6.00904;
  report.grad_norm = 1234.567;
  report.learning_rate = 3e-4;
  report.seconds = 1;
  report.tokens = 4096;
  return report;
}

std::string at(int columns) {
  return progress_text(long_report(), 1'000'000, 4096, columns);
}

TEST(ProgressText, FitsAnyWidthAndKeepsWhatMattersMost) {
  const std::string whole = at(0);
  for (const char* part : {"step 123456/1000000", "loss 6.0090", "grad_norm 1234.567", "lr 3.00e-04", "tokens/s", " left"}) {
    EXPECT_THAT(whole, HasSubstr(part));
  }
  EXPECT_EQ(at(200), whole);
  for (int columns = 10; columns < 120; ++columns) EXPECT_LT(at(columns).size(), static_cast<std::size_t>(columns)) << columns;
  const std::string usual = at(80);
  for (const char* part : {"step 123456/1000000", "loss 6.0090", "tokens/s", " left"}) EXPECT_THAT(usual, HasSubstr(part));
  EXPECT_THAT(usual, Not(HasSubstr("lr ")));
  EXPECT_THAT(at(40), HasSubstr("step 123456/1000000  loss 6.0090"));
  EXPECT_THAT(at(40), Not(HasSubstr("grad_norm")));
}

TEST(ProgressText, SaysHowWellExpertsAreBalanced) {
  StepReport report = long_report();
  EXPECT_THAT(progress_text(report, 1'000'000, 4096, 0), Not(HasSubstr("load")));
  report.expert_choices = {1, 2, 3};
  report.expert_load = 1.5;
  EXPECT_THAT(progress_text(report, 1'000'000, 4096, 0), HasSubstr("  load 1.50  "));
}

TEST(ProgressText, SaysWhatTheModelReportsOfItsOwn) {
  StepReport report = long_report();
  report.metrics = {{"preference_accuracy", 0.75}, {"reward_margin", -0.0312345}};
  EXPECT_THAT(progress_text(report, 1'000'000, 4096, 0),
              HasSubstr("loss 6.0090  preference_accuracy 0.75  reward_margin -0.03123  grad_norm"));
  EXPECT_THAT(progress_text(report, 1'000'000, 4096, 80), Not(HasSubstr("reward_margin")));
}

TEST(FitLine, CutsWholeCharacters) {
  EXPECT_EQ(fit_line("abcdef", 0), "abcdef");
  EXPECT_EQ(fit_line("abcdef", 7), "abcdef");
  EXPECT_EQ(fit_line("abcdef", 6), "abcde");
  EXPECT_EQ(fit_line("a\u00e9\u00e9z", 4), "a\u00e9\u00e9");
}

/// Rows that a terminal of `columns` shows in the end: line feeds, carriage returns, "erase to the end of the line", wrapping.
std::vector<std::string> screen(const std::string& output, std::size_t columns) {
  std::vector<std::string> rows(1);
  std::size_t column = 0;
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (output.compare(i, 3, "\033[K") == 0) {
      rows.back().resize(std::min(rows.back().size(), column));
      i += 2;
    } else if (output[i] == '\r') {
      column = 0;
    } else if (output[i] == '\n') {
      rows.emplace_back();
      column = 0;
    } else {
      if (column == columns) {
        rows.emplace_back();
        column = 0;
      }
      rows.back().resize(std::max(rows.back().size(), column + 1), ' ');
      rows.back()[column++] = output[i];
    }
  }
  return rows;
}

TEST(ProgressLine, AnEightyColumnTerminalShowsOneLine) {
  test::TerminalProcess run({CONSIST_BINARY_DIR "/bin/consist", "train", "--model",
                             CONSIST_SOURCE_DIR "/tests/golden/hf/qwen3-tied", "--from-scratch", "--device", "cpu", "--dataset",
                             "synthetic", "--sequence", "32", "--batch", "2", "--steps", "300", "--evaluate-every", "0"},
                            {}, -1, 80);
  ASSERT_EQ(run.wait(std::chrono::seconds(120)), 0) << run.output();
  const std::vector<std::string> rows = screen(run.output(), 80);
  std::vector<std::string> progress;
  for (const std::string& row : rows) {
    if (row.find("loss") != std::string::npos && row.starts_with("step ")) progress.push_back(row);
  }
  ASSERT_THAT(progress, SizeIs(1)) << run.output();
  EXPECT_THAT(progress.front(), HasSubstr("step 300/300"));
  EXPECT_THAT(progress.front(), HasSubstr("tokens/s"));
}

}  // namespace
}  // namespace consist
