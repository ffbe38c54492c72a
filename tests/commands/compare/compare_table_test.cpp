// The table of a comparison, of outcomes that no run is needed for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "launch/compare/table.h"
#include "tests/commands/compare/compare_outcomes.h"

namespace consist::launch {
namespace {

using test::disturbed;
using test::finished;
using test::not_finished;
using test::rows_of;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(CompareTable, SaysWhatIsSentWhereTheTransportDoesNotCount) {
  const std::vector<CompareRow> rows = rows_of({"--model", "m", "--transport", "socket,nvlink"});
  CompareOutcome counted = finished(0, {100, 100});
  counted.runs[0].bytes_sent_per_step = 3 << 20;
  CompareOutcome planned = finished(1, {100, 100});
  planned.runs[0].sent_is_counted = false;
  planned.runs[0].bytes_sent_per_step = 2 << 20;
  const std::string both = comparison_text(rows, {counted, planned});
  EXPECT_THAT(both, ContainsRegex("socket.* 3\\.0 MiB "));
  EXPECT_THAT(both, ContainsRegex("nvlink.* ~2\\.0 MiB "));
  EXPECT_THAT(both, HasSubstr("\n~: the transport does not count"));
  CompareOutcome other = counted;
  other.same_program_as = 1;
  EXPECT_THAT(comparison_text(rows, {counted, other}), Not(HasSubstr("~")));
  planned.runs[0].bytes_sent_per_step = unknown;  // an archive of before
  planned.runs[0].sent_is_counted = true;
  EXPECT_THAT(comparison_text(rows, {counted, planned}), ContainsRegex("nvlink.* MiB +- +1\\.0000"));
}

TEST(CompareTable, HasCostsWhereAPriceIsGivenAndEnergyWhereItWasMeasured) {
  const std::vector<CompareRow> rows = rows_of({"--model", "m", "--strategy", "ddp,zero2"});
  CompareOutcome cheap = finished(0, {200, 200}), dear = finished(1, {100, 100});
  EXPECT_THAT(comparison_text(rows, {cheap, dear}), Not(HasSubstr("BTOK")));
  for (RunOutcome& run : cheap.runs) run.cost = 12.5;
  EXPECT_THAT(
      comparison_text(rows, {cheap, dear}),
      ::testing::AllOf(ContainsRegex("COST/BTOK +LOSS"), ContainsRegex("ddp .* 12\\.5 "), ContainsRegex("zero2 .* - +1\\.0000"),
                       HasSubstr("Energy was not measured"), Not(HasSubstr("J/BTOK"))));
  cheap.runs[0].joules = 3e7;
  cheap.runs[1].joules = 5e7;
  EXPECT_THAT(comparison_text(rows, {cheap, dear}),
              ::testing::AllOf(ContainsRegex("ddp .* 12\\.5 +40\\.0 M "), Not(HasSubstr("Energy was not measured"))));
}

TEST(CompareTable, HasColumnsOfTheMetricsThatAllFinishedRowsReport) {
  const std::vector<CompareRow> rows = rows_of({"--model", "m", "--strategy", "ddp,zero2,cp"});
  CompareOutcome first = finished(0, {200, 200}), second = finished(1, {100, 100});
  first.runs[0].metrics = {{"preference_accuracy", 0.75}, {"reward_margin", 0.123456}};
  first.runs[1].metrics = {{"preference_accuracy", 0.5}, {"reward_margin", 9}};  // those of the first run are shown
  second.runs[0].metrics = {{"reward_margin", std::numeric_limits<double>::quiet_NaN()}, {"divergence", 2}};
  const std::vector<CompareOutcome> outcomes{first, second, not_finished(2, "refused", "too small")};
  const std::string some = comparison_text(rows, outcomes);
  EXPECT_THAT(some, ::testing::AllOf(ContainsRegex("LOSS +PARITY +REWARD_MARGIN\n"), ContainsRegex("ddp .* 0\\.1235\n"),
                                     ContainsRegex("zero2 .* nan\n"), ContainsRegex("cp +refused: too small\n"),
                                     Not(HasSubstr("ACCURACY")), Not(HasSubstr("DIVERGENCE"))));
  second.runs[0].metrics = {{"reward_margin", -3}, {"preference_accuracy", 1}};
  const std::string both = comparison_text(rows, {first, second, outcomes[2]});
  EXPECT_THAT(both, ::testing::AllOf(ContainsRegex("PARITY +PREFERENCE_ACCURACY +REWARD_MARGIN\n"),
                                     ContainsRegex("ddp .* 0\\.75 +0\\.1235\n"), ContainsRegex("zero2 .* 1 +-3\n")));
  second.runs[0].metrics.clear();
  EXPECT_THAT(comparison_text(rows, {first, second, outcomes[2]}), ContainsRegex("LOSS +PARITY *\n"));
}

TEST(CompareTable, RowsOfOneProgramAreOneRow) {
  const std::vector<CompareRow> rows = rows_of({"--model", "m", "--strategy", "ddp,zero2,tp-sp"});
  CompareOutcome same = finished(0, {100, 101});
  const std::string text = comparison_text(rows, {same, same, finished(2, {50, 51})});
  EXPECT_THAT(text, ContainsRegex("\n\\*= +m +ddp "));
  EXPECT_THAT(text, Not(ContainsRegex("\n..? +m +zero2 ")));
  EXPECT_THAT(text, HasSubstr("= m_ddp is the same program as m_zero2: one row for all of them."));
}

TEST(CompareTable, FitsTheTerminal) {
  const std::vector<CompareRow> rows = rows_of({"--model", "llama-tiny,qwen3-tiny", "--ranks", "1,2"});
  std::vector<CompareOutcome> outcomes;
  for (std::size_t i = 0; i < rows.size(); ++i) outcomes.push_back(finished(i, {12700, 12800, 12650}, 1.3e8));
  std::istringstream wrapped(comparison_text(rows, outcomes, 80));
  int headers = 0;
  for (std::string line; std::getline(wrapped, line);) {
    headers += line.find("MODEL") != std::string::npos ? 1 : 0;
    if (line.find("tiny") != std::string::npos) EXPECT_LE(line.size(), 82u) << line;  // ± is two bytes
  }
  EXPECT_EQ(headers, 2);
  EXPECT_THAT(comparison_text(rows, outcomes, 0), ContainsRegex("MODEL.*TOKENS/S.*PARITY"));
}

TEST(CompareTable, LossesOfOtherTokensAStepHaveNoParity) {
  const std::vector<CompareRow> rows = rows_of({"--model", "m", "--batch", "1,2", "--precision", "a,b"});
  std::vector<CompareOutcome> outcomes;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    outcomes.push_back(finished(i, {100, 101}));
    outcomes.back().step_tokens = i < 2 ? 64 : 128;
  }
  const std::vector<double> parity = parities(rows, outcomes);
  EXPECT_EQ(parity[0], 0);
  EXPECT_EQ(parity[1], 0);
  EXPECT_TRUE(std::isnan(parity[2]) && std::isnan(parity[3]));
  EXPECT_THAT(unequal_steps_text(rows, outcomes),
              HasSubstr("64 tokens (m_batch1_a and 1 more); 128 tokens (m_batch2_a and 1 more)."));
  for (CompareOutcome& outcome : outcomes) outcome.step_tokens = 64;
  EXPECT_EQ(unequal_steps_text(rows, outcomes), "");
}

TEST(CompareTable, SaysTheUnitOfLossesThatAreNotByToken) {
  const std::vector<CompareRow> rows = rows_of({"--model", "m", "--loss", "dpo,next-token"});
  CompareOutcome pairs = finished(0, {100, 100});
  const CompareOutcome tokens = finished(1, {100, 100});
  for (RunOutcome& run : pairs.runs) run.loss_unit = "nat/pair";
  EXPECT_THAT(comparison_text(rows, {pairs, tokens}), HasSubstr("\nLOSS: of the last step, in nat/pair, nat/token.\n"));
  EXPECT_EQ(common_loss_unit(std::vector{pairs, tokens}), "") << "a column has one unit";
  EXPECT_EQ(common_loss_unit(std::vector{pairs, not_finished(1, "failed")}), "nat/pair");
  EXPECT_THAT(comparison_text(rows, {finished(0, {100, 100}), tokens}), Not(HasSubstr("LOSS:")));
  EXPECT_EQ(common_loss_unit(std::vector{finished(0, {100, 100}), tokens}), "nat/token");
}

TEST(CompareTable, ReasonsAreWholeAndMemorySaysItsRank) {
  const std::vector<CompareRow> rows = rows_of({"--model", "m", "--batch", "1,2"});
  CompareOutcome largest = finished(0, {100, 101});
  largest.runs[0].measured_bytes = 3e9;
  largest.runs[0].measured_rank = 3;
  const std::string text = comparison_text(rows, {largest, not_finished(1, "failed", "first line\nsecond line")});
  EXPECT_THAT(text, HasSubstr("2.8 GiB @3"));
  EXPECT_THAT(text, HasSubstr("failed: first line\n      second line\n"));
}

TEST(CompareTable, NamesWhatDisturbedIt) {
  const std::vector<CompareRow> rows = rows_of({"--model", "m", "--batch", "1,2"});
  CompareOutcome uneven = finished(0, {100, 101, 102});
  uneven.runs[0].bound_flops = 100e9;
  uneven.runs[1].bound_flops = 60e9;
  uneven.runs[0].clock = 1.98e9;
  uneven.runs[1].clock = 1.2e9;
  CompareOutcome busy = disturbed(finished(1, {100, 101, 102}), 2);
  busy.runs[0].share_of_bound = 0.7;
  const std::string text = warnings_text(rows, {uneven, busy});
  EXPECT_THAT(text, HasSubstr("other work ran beside 2 of 6 runs: other processes took 48% of the processors' time"));
  EXPECT_THAT(text, HasSubstr("the rate of the largest linear of m_batch1 was 60.0 GFLOP/s to 100 GFLOP/s"));
  EXPECT_THAT(text, HasSubstr("the clock of the device of m_batch1 was 1.20 GHz to 1.98 GHz"));
  EXPECT_THAT(comparison_text(rows, {uneven, busy}), Not(HasSubstr("70%"))) << "a bound that was measured beside other work";
  EXPECT_EQ(warnings_text(rows, {finished(0, {1, 1}), finished(1, {1, 1})}), "");
  CompareOutcome stolen = disturbed(finished(1, {100, 101, 102}), 1);
  for (RunOutcome& run : stolen.runs) {
    if (run.processors) run.processors->others = 0;
  }
  stolen.runs[0].processors->stolen = 0.2;
  EXPECT_THAT(warnings_text(rows, {finished(0, {1, 1}), stolen}), HasSubstr(" runs: other virtual machines up to 20%\n"));
}

}  // namespace
}  // namespace consist::launch
