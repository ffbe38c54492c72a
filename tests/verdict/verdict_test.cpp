// Verdicts on archives whose differences are known, and the command on them.
#include "launch/verdict/verdict.h"

#include <gmock/gmock.h>

#include <map>

#include "consist/error.h"
#include "launch/verdict/amounts.h"
#include "launch/verdict/verdict_json.h"
#include "launch/verdict/words.h"
#include "tests/verdict/side_archives.h"

namespace consist::launch {
namespace {

using test::SideArchive;
using test::Sides;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

Verdict verdict_on(const std::string& a, const std::string& b, const VerdictRequest& request = {}) {
  return judge(read_side(a), read_side(b), request);
}

/// Names of the differences by their kinds.
std::map<std::string, std::string> kinds_of(const Verdict& verdict) {
  std::map<std::string, std::string> kinds;
  for (const Difference& difference : verdict.differences) kinds[difference.name] = difference.kind;
  return kinds;
}

TEST(CallOf, IsTheSameInTheMarginAndUnclearWhereTheIntervalLeavesIt) {
  const auto call = [](double low, double high, bool more_is_better = true) {
    return call_of({.method = Method::welch_runs, .ratio = 1, .low = low, .high = high, .problem = {}}, 0.02, more_is_better);
  };
  EXPECT_EQ(call(0.99, 1.01), Call::same);
  EXPECT_EQ(call(1.005, 1.01), Call::same) << "a difference that does not matter";
  EXPECT_EQ(call(1.01, 1.05), Call::better);
  EXPECT_EQ(call(0.95, 0.99), Call::worse);
  EXPECT_EQ(call(0.95, 0.99, false), Call::better);
  EXPECT_EQ(call(0.97, 1.01), Call::unclear);
  EXPECT_EQ(call_of({.problem = "none"}, 0.02, true), Call::unclear);
}

TEST(PercentOf, TakesPercentagesAlone) {
  EXPECT_DOUBLE_EQ(percent_of("slower", "2%"), 0.02);
  EXPECT_DOUBLE_EQ(percent_of("confidence", "99.9%", 0.5), 0.999);
  for (const char* text : {"2", "0.02", "", "%", "-1%", "0%", "100%", "nan%", "2%%", "2 %"})
    EXPECT_THAT(message_of([&] { percent_of("slower", text); }), StartsWith("--slower is \"" + std::string(text))) << text;
}

TEST(SecondsOf, TakesDurationsWithTheirUnits) {
  EXPECT_EQ(seconds_of("until-sure", "90s"), 90);
  EXPECT_EQ(seconds_of("until-sure", "1.5min"), 90);
  EXPECT_EQ(seconds_of("until-sure", "2h"), 7200);
  for (const char* text : {"10", "10m", "", "min", "-1s", "0s", "inf s", "1 s"})
    EXPECT_THAT(message_of([&] { seconds_of("until-sure", text); }), HasSubstr("it must be a duration with its unit")) << text;
}

TEST_F(Sides, AreJudgedByTheirRuns) {
  const std::string a = side("a", 5, {.seconds = 0.1}, 0), b = side("b", 5, {.seconds = 0.11, .attention = 0.01}, 1);
  const Verdict verdict = verdict_on(a, b, {.slower = 0.02});
  EXPECT_TRUE(verdict.turns);
  EXPECT_EQ(verdict.speed().contrast.method, Method::paired_runs);
  EXPECT_EQ(verdict.speed().call, Call::worse);
  EXPECT_EQ(verdict.exit_status(), 1);
  EXPECT_NEAR(verdict.speed().contrast.ratio, 1 / 1.1, 0.02);
  EXPECT_THAT(kinds_of(verdict), IsEmpty());
  EXPECT_EQ(verdict.judgements[1].call, Call::same);
  EXPECT_EQ(verdict.judgements[1].contrast.method, Method::exact);
  EXPECT_EQ(verdict.judgements[2].call, Call::same);
  EXPECT_EQ(verdict.judgements[2].contrast.method, Method::exact) << "the losses of both are equal";
  EXPECT_EQ(verdict.judgements[3].call, Call::unclear) << "no power was measured";
  EXPECT_THAT(
      verdict_text(verdict),
      AllOf(HasSubstr("B is slower than A: -9"), HasSubstr("--slower: B is slower than A by more than 2%."),
            HasSubstr("One configuration, on one machine, with the same versions."), HasSubstr("(Student's t of pairs)")));
}

TEST_F(Sides, ThatAreEqualAreTheSameOrCannotBeTold) {
  const std::string a = side("a", 5, {.noise = 0.002}, 0), b = side("b", 5, {.noise = 0.002}, 1);
  EXPECT_EQ(verdict_on(a, b, {.slower = 0.02}).speed().call, Call::same);
  EXPECT_EQ(verdict_on(a, b, {.slower = 0.02}).exit_status(), 0);
  const std::string wild = side("wild", 3, {.noise = 0.2}, 1);
  EXPECT_EQ(verdict_on(a, wild, {.slower = 0.02}).speed().call, Call::unclear);
  EXPECT_EQ(verdict_on(a, wild, {.slower = 0.02}).exit_status(), 3);
  EXPECT_EQ(verdict_on(a, wild).exit_status(), 0) << "without --slower there is nothing to fail";
}

TEST_F(Sides, PartsOfTheReasonSumToTheDifference) {
  const Verdict verdict = verdict_on(side("a", 3, {}, 0), side("b", 3, {.seconds = 0.12, .attention = 0.02}, 1));
  double sum = 0;
  for (const PartChange& part : verdict.reason.parts) sum += part.change();
  EXPECT_NEAR(sum, verdict.reason.step_b - verdict.reason.step_a, 1e-9);
  EXPECT_NEAR(verdict.reason.step_b / verdict.reason.step_a, 1 / verdict.speed().contrast.ratio, 1e-9);
  const auto attention = std::find_if(verdict.reason.parts.begin(), verdict.reason.parts.end(),
                                      [](const PartChange& part) { return part.part == "attention"; });
  ASSERT_NE(attention, verdict.reason.parts.end());
  EXPECT_NEAR(attention->change(), 0.02, 0.001);
}

TEST_F(Sides, ReasonsAreOfAsManyTokens) {
  const Verdict verdict = verdict_on(side("a", 3, {.tokens = 64}, 0), side("b", 3, {.seconds = 0.2, .tokens = 128}, 1));
  EXPECT_NEAR(verdict.speed().contrast.ratio, 1, 0.02);
  EXPECT_NEAR(verdict.reason.step_b / verdict.reason.step_a, 1, 0.02) << "a step of twice the tokens may take twice as long";
  double sum = 0;
  for (const PartChange& part : verdict.reason.parts) sum += part.change();
  EXPECT_NEAR(sum, verdict.reason.step_b - verdict.reason.step_a, 1e-9);
  EXPECT_THAT(verdict_text(verdict), HasSubstr("time of as many tokens as a step of A has: "));
}

TEST_F(Sides, OfOtherWorkCannotBeJudgedUnlessByTurns) {
  const SideArchive quiet{.noise = 0.002}, disturbed{.noise = 0.002, .others = 0.6};
  const Verdict apart = verdict_on(side("a", 3, quiet, 0), side("b", 3, disturbed, 100), {.slower = 0.02});
  EXPECT_FALSE(apart.speed().comparable);
  EXPECT_EQ(apart.exit_status(), 3);
  EXPECT_THAT(apart.speed().problem, HasSubstr("other processes took 60% of the processors' time"));
  const Verdict turns = verdict_on(side("c", 3, disturbed, 0), side("d", 3, disturbed, 1));
  EXPECT_TRUE(turns.speed().comparable);
  const Verdict single = verdict_on(side("h", 1, disturbed, 0), side("i", 1, disturbed, 1));
  EXPECT_THAT(single.speed().problem, HasSubstr("single runs do not show how far that makes them differ"));
  const Verdict enough = verdict_on(side("e", 3, quiet, 0), side("f", 3, quiet, 1) + "," + side("g", 1, disturbed, 50));
  EXPECT_EQ(enough.b.runs.size(), 3U);
  EXPECT_THAT(enough.notes, ElementsAre("1 runs beside which other work ran are left out"));
}

TEST_F(Sides, OfSingleRunsSayWhatTheyAssume) {
  const Verdict verdict = verdict_on(side("a", 1, {}, 0), side("b", 1, {.seconds = 0.2}, 1));
  EXPECT_EQ(verdict.speed().contrast.method, Method::batch_means);
  EXPECT_EQ(verdict.speed().contrast.run_spread, 0.06) << "of processors";
  EXPECT_EQ(verdict.speed().call, Call::worse);
  EXPECT_THAT(verdict_text(verdict), HasSubstr("taken from --run-spread"));
  const Verdict of_devices = verdict_on(side("c", 1, {.clock = 1.98e9}, 0), side("d", 1, {.clock = 1.98e9}, 1));
  EXPECT_EQ(of_devices.speed().contrast.run_spread, 0.01);
}

TEST_F(Sides, SayFirstWhatMakesThemIncomparable) {
  const SideArchive one{.clock = 1.9e9, .load = 1, .config = {{"/chosen_options/cpu/bf16", "native"}}};
  const SideArchive other{
      .tokens = 128,
      .clock = 1.5e9,
      .load = 2,
      .config = {{"/sequence", 64}, {"/learning_rate", 0.1}, {"/dataset", "text"}, {"/chosen_options/cpu/bf16", "another"}},
      .environment = {{"/host", "another"}, {"/device", "NVIDIA H100"}, {"/versions/onednn", "9"}}};
  const Verdict verdict = verdict_on(side("a", 3, one, 0), side("b", 3, other, 1), {.slower = 0.5});
  const auto kinds = kinds_of(verdict);
  EXPECT_EQ(kinds, (std::map<std::string, std::string>{{"sequence", "sizes"},
                                                       {"learning_rate", "option"},
                                                       {"chosen_options/cpu/bf16", "measurement"},
                                                       {"dataset", "data"},
                                                       {"host", "machine"},
                                                       {"name of the device", "machine"},
                                                       {"versions/onednn", "versions"},
                                                       {"tokens per step", "tokens per step"},
                                                       {"mean clock of the device", "clock"},
                                                       {"load of the most chosen expert", "experts"}}));
  for (const Judgement& judgement : verdict.judgements) EXPECT_EQ(judgement.call, Call::unclear) << judgement.quantity;
  EXPECT_EQ(verdict.exit_status(), 3);
  const std::string text = verdict_text(verdict);
  EXPECT_LT(text.find("Not comparable:\n"), text.find("Conditions that differ:\n"));
  EXPECT_LT(text.find("Conditions that differ:\n"), text.find("Options that differ:\n  learning_rate: "));
  EXPECT_LT(text.find("Options that differ"),
            text.find("It cannot be told whether B is faster or slower than A: not comparable: "));
  EXPECT_THAT(text, HasSubstr("sequence: 32 (A), 64 (B); prevents: speed, memory, loss and energy"));
}

TEST_F(Sides, LossesOfTwoKindsAreNotJudged) {
  const Verdict verdict = verdict_on(side("a", 3, {}, 0), side("b", 3, {.config = {{"/loss", "dpo"}}}, 1), {.slower = 0.5});
  EXPECT_EQ(kinds_of(verdict).at("loss"), "training");
  EXPECT_THAT(verdict_text(verdict), HasSubstr("loss: next-token (A), dpo (B); prevents: loss"));
}

TEST_F(Sides, LossesAreInTheirUnit) {
  const auto pairs = [](int number) { return SideArchive{.loss_unit = "nat/pair", .config = {{"/seed", number}}}; };
  EXPECT_EQ(verdict_on(side("a", 1, pairs(0), 0), side("b", 1, pairs(0), 1)).judgements[2].unit, "nat/pair");
  EXPECT_EQ(verdict_on(side("c", 1, {}, 0), side("d", 1, {}, 1)).judgements[2].unit, "nat/token");
}

TEST_F(Sides, LossesAreJudgedOnTheSameData) {
  const auto seeded = [](int seed, double loss) { return SideArchive{.loss = loss, .config = {{"/seed", seed}}}; };
  const std::string a = side("a", 1, seeded(0, 7), 0);
  const Judgement higher = verdict_on(a, side("b", 1, seeded(0, 7.1), 1)).judgements[2];
  EXPECT_EQ(higher.call, Call::worse);
  EXPECT_EQ(word_of(higher), "higher");
  EXPECT_EQ(higher.contrast.method, Method::paired_steps);
  EXPECT_EQ(higher.first_step, 21);
  EXPECT_EQ(higher.last_step, 40);
  EXPECT_THAT(verdict_on(a, side("c", 1, seeded(1, 7.1), 1)).judgements[2].problem, HasSubstr("different seeds"));
  std::string many_a, many_b;
  for (int seed = 0; seed < 4; ++seed) {
    many_a += (seed == 0 ? "" : ",") + side("d" + std::to_string(seed), 1, seeded(seed, 7 + 0.5 * seed), 2 * seed);
    many_b += (seed == 0 ? "" : ",") + side("e" + std::to_string(seed), 1, seeded(seed, 7.2 + 0.5 * seed), 2 * seed + 1);
  }
  const Judgement paired = verdict_on(many_a, many_b).judgements[2];
  EXPECT_EQ(paired.contrast.method, Method::paired_runs);
  EXPECT_EQ(paired.call, Call::worse) << "seeds differ by more than the sides do, and pairs take that out";
}

TEST_F(Sides, EnergyIsJudgedWhereItWasMeasured) {
  const Verdict verdict =
      verdict_on(side("a", 3, {.power = 700, .clock = 1.9e9}, 0), side("b", 3, {.power = 500, .clock = 1.9e9}, 1));
  EXPECT_EQ(verdict.judgements[3].call, Call::better);
  EXPECT_EQ(word_of(verdict.judgements[3]), "less");
  EXPECT_NEAR(verdict.judgements[3].contrast.ratio, 5.0 / 7.0, 0.02);
  EXPECT_THAT(verdict_text(verdict), HasSubstr("energy, J/BTOK"));
}

TEST_F(Sides, AreOneConfigurationOfFinishedRuns) {
  const std::string a = side("a", 2, {}, 0), other = side("b", 1, {.config = {{"/learning_rate", 0.5}}}, 9);
  EXPECT_THAT(message_of([&] { read_side(a + "," + other); }),
              AllOf(HasSubstr("names runs of several configurations: learning_rate is "), HasSubstr("0.5 (b0.h5)")));
  const std::string stopped = side("c", 1, {.status = "stopped"}, 3);
  EXPECT_THAT(message_of([&] { read_side(stopped); }),
              HasSubstr("is stopped (as it was told to); a verdict takes runs that finished"));
  EXPECT_THAT(message_of([&] { read_side(folder_ / "none.h5"); }),
              HasSubstr("none.h5': a side is an archive, a folder of archives"));
  EXPECT_THAT(message_of([&] { read_side("," + a); }), HasSubstr("there is no ''"));
  const Side seeds = read_side(a + "," + side("d", 1, {.config = {{"/seed", 7}}}, 5));
  EXPECT_EQ(seeds.runs.size(), 3U) << "seeds may differ";
  EXPECT_EQ(read_side(a + "," + a).runs.size(), 2U) << "a run counts once";
}

TEST_F(Sides, HaveStepsThatWereTimed) {
  const std::string stopped_clock = side("a", 1, {.seconds = 0}, 0), empty = side("b", 1, {.tokens = 0}, 0);
  for (const std::string& given : {stopped_clock, empty})
    EXPECT_THAT(message_of([&] { read_side(given); }), HasSubstr("has steps without a time or tokens")) << given;
  const Verdict verdict = verdict_on(side("c", 1, {.loss = 0.2}, 0), side("d", 1, {}, 1));
  EXPECT_EQ(verdict.judgements[2].problem, "a loss is not a positive number") << "it falls below zero";
  const Verdict shorter = verdict_on(side("e", 1, {.steps = 15}, 0), side("f", 1, {}, 1));
  EXPECT_EQ(shorter.judgements[2].first_step, 1);
  EXPECT_EQ(shorter.judgements[2].last_step, 15);
}

TEST_F(Sides, AreNamedAsCompareNamesRows) {
  for (const char* name : {"row.h5", "row.repeat2.h5", "row.repeat3.h5"}) test::write_side(folder_ / name, *real_, {});
  std::vector<std::string> notes;
  EXPECT_THAT(archives_of_side(folder_ / "row", notes),
              ElementsAre(folder_ / "row.h5", folder_ / "row.repeat2.h5", folder_ / "row.repeat3.h5"));
  EXPECT_THAT(notes, IsEmpty());
  EXPECT_THAT(archives_of_side(folder_ / "row.h5", notes), ElementsAre(folder_ / "row.h5"));
  EXPECT_THAT(notes, ElementsAre(AllOf(StartsWith("2 more runs of "), HasSubstr("row takes all of them"))));
  EXPECT_EQ(archives_of_side(folder_.path().string(), notes).size(), 4U) << "with that of the real run";
}

TEST_F(Sides, AreMarkdownForAComment) {
  const Verdict verdict = verdict_on(side("a|x", 3, {}, 0), side("b", 3, {.seconds = 0.12}, 1), {.slower = 0.02});
  const std::string text = verdict_markdown(verdict);
  EXPECT_THAT(text, AllOf(HasSubstr("**B is slower than A: "), HasSubstr("|  | A | B | B over A | 95% interval |  |\n|---|---:|"),
                          HasSubstr("a\\|x0.h5"), HasSubstr("<details>"), HasSubstr("--slower: B is slower")));
}

TEST_F(Sides, TheCommandsStatusIsThatOfItsGate) {
  const std::string consist = CONSIST_BINARY_DIR "/bin/consist";
  const std::string a = side("a", 3, {.noise = 0.002}, 0), b = side("b", 3, {.seconds = 0.12, .noise = 0.002}, 1),
                    wild = side("wild", 3, {.noise = 0.3}, 1);
  const auto status = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {consist, "verdict"});
    return test::run_child(words).status;
  };
  EXPECT_EQ(status({a, b}), 0);
  EXPECT_EQ(status({a, b, "--slower", "2%"}), 1);
  EXPECT_EQ(status({a, b, "--slower", "30%"}), 0);
  EXPECT_EQ(status({b, a, "--slower", "2%", "--confidence", "99%"}), 0) << "B is faster";
  EXPECT_EQ(status({a, wild, "--slower", "2%"}), 3);
  EXPECT_EQ(status({a}), 2);
  write_whole(folder_ / "damaged.h5", read_whole(folder_ / "real.h5").substr(0, 3000));
  EXPECT_EQ(status({a, folder_ / "damaged.h5", "--slower", "2%"}), 2) << "1 is for what is slower";
  EXPECT_EQ(status({a, b, "--slower", "2"}), 2);
  EXPECT_EQ(status({a, b, "--confidence", "40%"}), 2);
  EXPECT_EQ(status({a, b, "--json", "--markdown"}), 2);
}

}  // namespace
}  // namespace consist::launch
