// No sentence of a report contradicts its table, and what training did besides its loss is there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "tests/report/made_archives.h"

namespace consist {
namespace {

using nlohmann::json;
using test::ChildResult;
using test::consist_says;
using test::evaluate;
using test::Made;
using test::made_from;
using test::new_run;
using test::ReportInABrowser;
using test::set_parts;
using test::write_made;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ReportWords : public ReportInABrowser {
 protected:
  void SetUp() override {
    ReportInABrowser::SetUp();
    if (IsSkipped()) return;
    real_.emplace(new_run(folder_));
  }
  Made made() const { return made_from(*real_); }
  std::string write(const std::string& name, const Made& row) { return write_made(folder_ / (name + ".h5"), *real_, row); }
  /// The value that `script` returns on the page of these archives.
  json seen(std::vector<std::string> archives, const std::string& script) {
    archives.insert(archives.begin(), "report");
    archives.insert(archives.end(), {"-o", folder_ / "report.html", "--overwrite"});
    const ChildResult written = consist_says(archives);
    EXPECT_EQ(written.status, 0) << written.output;
    std::vector<std::string> console;
    json result = evaluate(folder_ / "report.html", script, &console);
    EXPECT_THAT(console, IsEmpty());
    return result;
  }

  /// Three runs of a row, the repeats of one strategy, which scatter by 1 ms.
  void add_row(std::vector<std::string>& archives, const std::string& strategy, Made row) {
    row.config["strategy"] = strategy;
    std::filesystem::create_directory(folder_ / strategy);
    for (const char* run : {"1", "2", "3"}) {
      archives.push_back(write(strategy + "/" + run, row));
      row.seconds += 0.001;
    }
  }
  Made with_parts(const std::map<std::string, double>& parts) const {
    Made row = made();
    set_parts(row, parts);
    return row;
  }

  TemporaryFolder folder_;
  std::optional<ArchiveReader> real_;
};

/// One run each: 6% more is measured and is not certain.
TEST_F(ReportWords, WhatIsNotCertainIsNotAsserted) {
  Made fast = made(), slow = made();
  slow.config["strategy"] = "zero2";
  slow.seconds = 0.106;
  const json page = seen({write("fast", fast), write("slow", slow)}, R"(
    const why = document.getElementById('why');
    return {answer: document.getElementById('answer').textContent, why: why.textContent,
            bold: [...why.querySelectorAll('strong')].map((e) => e.textContent).join(' ')};)");
  ASSERT_TRUE(page.is_object()) << page;
  EXPECT_THAT(page.at("answer").get<std::string>(), AllOf(HasSubstr("not certain"), Not(HasSubstr("is the fastest"))));
  EXPECT_THAT(page.at("why").get<std::string>(), HasSubstr("cannot be told apart"));
  EXPECT_THAT(page.at("bold").get<std::string>(), Not(HasSubstr("the speed of")));
}

constexpr const char* sentences = R"(
  const texts = (selector) => [...document.querySelectorAll(selector)].map((e) => e.textContent);
  return {verdict: texts('#answer .verdict p'), why: texts('#why p').slice(0, 2), stars: texts('#rows tbody tr.best th'),
          parts: texts('#parts tbody tr:not(.fold) td:nth-child(4)'), answer: document.getElementById('answer').textContent};)";

TEST_F(ReportWords, ASureWinnerIsNamedWithItsReason) {
  std::vector<std::string> archives;
  add_row(archives, "ddp", with_parts({{"attention", 0.04}, {"memory_bound", 0.06}}));
  add_row(archives, "zero2", with_parts({{"attention", 0.02}, {"memory_bound", 0.18}}));
  add_row(archives, "zero3-offload", with_parts({{"attention", 0.02}, {"memory_bound", 0.18}, {"gaps", 0.2}}));
  const json page = seen(archives, sentences);
  ASSERT_TRUE(page.is_object()) << page;
  const std::string why = "zero2 takes 100 ms longer per step: memory-bound ops +120 ms. Against it: attention −20.0 ms.";
  EXPECT_THAT(
      page.at("verdict"),
      ElementsAre("ddp is the fastest: 1.96× the speed of the next.",
                  "9.85 k tokens/s (9.61 k to 10.1 k); beside the next (zero2) 1.96× with a 95% interval of 1.91× to 2.01×; "
                  "3.88× the slowest (zero3-offload).",
                  "Beside zero2: they differ in strategy (zero2 and ddp).", "Why: " + why + " (measured over 15 steps)"));
  EXPECT_THAT(page.at("why"),
              ElementsAre("ddp is 1.96× the speed of zero2. 9.85 k tokens/s (9.61 k to 10.1 k) beside 5.02 k tokens/s "
                          "(4.96 k to 5.08 k).",
                          why));
  EXPECT_THAT(page.at("stars"), ElementsAre("ddp ★"));
  const auto parts = page.at("parts").get<std::vector<std::string>>();
  ASSERT_GE(parts.size(), 4U);
  EXPECT_THAT(std::vector(parts.begin(), parts.begin() + 3), ElementsAre("0", "−20.0 ms", "+120 ms"))
      << "matrix products, attention, memory-bound ops";
  EXPECT_EQ(parts.back(), "+100 ms");
}

/// The fastest and the slowest row are sure to differ; the one between them was disturbed.
TEST_F(ReportWords, ARowThatOtherWorkDisturbedIsNotToldApart) {
  std::vector<std::string> archives;
  Made disturbed = with_parts({{"memory_bound", 0.2}});
  disturbed.others = 0.5;
  add_row(archives, "ddp", with_parts({{"memory_bound", 0.1}}));
  add_row(archives, "zero2", with_parts({{"memory_bound", 0.15}}));
  add_row(archives, "zero3-offload", disturbed);
  const json page = seen(archives, sentences);
  ASSERT_TRUE(page.is_object()) << page;
  EXPECT_THAT(
      page.at("verdict"),
      ElementsAre("ddp was the fastest, 1.96× the speed of zero3-offload, but that is not certain.",
                  "ddp 9.85 k tokens/s (9.61 k to 10.1 k); zero3-offload 5.02 k tokens/s (4.96 k to 5.08 k). The reason: other "
                  "processes took 50% of the processors' time.",
                  "ddp is faster than zero2: 1.48× its speed.", "Beside zero2: they differ in strategy (zero2 and ddp).",
                  "Why: zero2 takes 50.0 ms longer per step: memory-bound ops +50.0 ms, 100% of it. (measured over 15 steps)"));
  EXPECT_THAT(page.at("stars"), ::testing::IsEmpty());
  EXPECT_THAT(page.at("answer").get<std::string>(),
              AllOf(HasSubstr("other work ran beside 3 of 9 runs: other processes took 50% of the processors' time"),
                    HasSubstr("strategy zero3-offload over ddp0.51×0.50× to 0.52×1means nothing here: other processes took 50% "
                              "of the processors' time")));
}

TEST_F(ReportWords, StepsOfDifferentNumbersOfTokensAreComparedByTokens) {
  Made few = with_parts({{"memory_bound", 0.1}}), many = with_parts({{"memory_bound", 0.15}});
  many.config["strategy"] = "zero2";
  many.config["batch"] = 2;
  many.tokens = 2 * few.tokens;
  many.loss = 7.5;
  const json page = seen({write("few", few), write("many", many)}, R"(
    return {answer: document.getElementById('answer').textContent, why: document.getElementById('why').textContent,
            loss: document.getElementById('loss').textContent};)");
  ASSERT_TRUE(page.is_object()) << page;
  EXPECT_THAT(page.at("answer").get<std::string>(),
              AllOf(HasSubstr("ddp takes 25.9 ms longer per 1,000 tokens: memory-bound ops +24.4 ms"),
                    HasSubstr("Steps of these rows train on different numbers of tokens: 1024 tokens")));
  EXPECT_THAT(page.at("why").get<std::string>(), HasSubstr("zero2 and ddp cannot be told apart: 1.35× the speed"));
  EXPECT_THAT(page.at("loss").get<std::string>(), Not(HasSubstr("Parity")));
}

/// As by recomputation: the rate is the same, and there is more to do.
TEST_F(ReportWords, MoreWorkIsSaidBesideItsRate) {
  Made plain = with_parts({{"products", 0.1}}), more = with_parts({{"products", 0.2}});
  more.config["recompute"] = "full";
  json& instructions = more.timeline.at("classes")[0].at("instructions");
  for (std::size_t n = 0; n < instructions.at("work").size(); ++n) {
    if (instructions.at("work")[n] != "products") continue;
    for (const char* column : {"flops", "seconds"}) {
      json& value = instructions.at(column)[n];
      value = 2 * value.get<double>();
    }
  }
  const json page = seen({write("plain", plain), write("more", more)}, "return document.getElementById('answer').textContent;");
  ASSERT_TRUE(page.is_string()) << page;
  EXPECT_THAT(page.get<std::string>(),
              HasSubstr("full takes 100 ms longer per step: matrix products +100 ms, 100% of it (2.00× the FLOP)."));
}

TEST_F(ReportWords, SharesAreOfTheStepsThatWereTimed) {
  Made wide = with_parts({{"products", 0.18}, {"gaps", 0.02}}), narrow = with_parts({{"products", 0.08}, {"gaps", 0.02}});
  wide.config["precision"] = "fp32";
  narrow.config["precision"] = "bf16";
  wide.seconds = 0.1;  // the steps that were not timed took half as long
  narrow.seconds = 0.05;
  const json page = seen({write("wide", wide), write("narrow", narrow)}, "return document.getElementById('answer').textContent;");
  ASSERT_TRUE(page.is_string()) << page;
  EXPECT_THAT(page.get<std::string>(), HasSubstr("Products and attention take 90% of the step in fp32 and 80% in bf16: what"));
}

TEST_F(ReportWords, TextWaterfallAndTableHaveOneSign) {
  Made fast = made(), slow = made();
  slow.config["strategy"] = "zero2";
  slow.seconds = 0.3;
  const json page = seen({write("slow", slow), write("fast", fast)}, R"(
    const sign = () => Number(document.getElementById('sum').dataset.difference);
    const first = sign(), select = document.getElementById('pair-0'), other = document.getElementById('pair-1').value;
    const text = document.getElementById('why').textContent;
    const before = select.value;
    select.value = other;
    select.dispatchEvent(new Event('change'));
    document.getElementById('pair-1').value = before;
    document.getElementById('pair-1').dispatchEvent(new Event('change'));
    return {first, swapped: sign(), text};)");
  ASSERT_TRUE(page.is_object()) << page;
  EXPECT_GT(page.at("first").get<double>(), 0);
  EXPECT_GT(page.at("swapped").get<double>(), 0) << "A is the faster, whatever was chosen";
  EXPECT_THAT(page.at("text").get<std::string>(), ::testing::ContainsRegex("zero2 takes .* longer"));
}

TEST_F(ReportWords, AdviceThatARowOfThePageIsStandsBesideWhatItMeasured) {
  Made plain = made(), other = made();
  plain.events = {{"advice", "--strategy zero2: 1.25 times as fast, predicted"}, {"advice", "--batch 8: 1.10 times as fast"}};
  other.config["strategy"] = "zero2";
  other.seconds = 0.099;
  const json page = seen({write("plain", plain), write("other", other)}, "return document.getElementById('answer').textContent;");
  ASSERT_TRUE(page.is_string()) << page;
  EXPECT_THAT(page.get<std::string>(),
              AllOf(::testing::ContainsRegex("--strategy zero2: simulated 1.25 times as fast, predicted; measured here 1.0[0-9]"),
                    HasSubstr("--batch 8: 1.10 times as fast")));
}

TEST_F(ReportWords, EvaluationsGradientsRatesAndSamplesAreThere) {
  Made row = made(), other = made();
  row.evaluations = {6.9, 6.8123};
  row.events = {{"sample", R"({"step": 4, "text": "Once <b>upon</b> a time"})"}};
  other.config["strategy"] = "zero2";
  const json page = seen({write("row", row), write("other", other)}, R"(
    redraw(true);
    return {text: document.getElementById('training').textContent, table: document.getElementById('table').textContent,
            charts: document.querySelectorAll('#training canvas').length, bold: document.querySelectorAll('#training b').length};)");
  ASSERT_TRUE(page.is_object()) << page;
  EXPECT_THAT(page.at("text").get<std::string>(),
              AllOf(HasSubstr("6.8123"), HasSubstr("Gradient norm"), HasSubstr("Learning rate"), HasSubstr("after step 4"),
                    HasSubstr("Once <b>upon</b> a time")));
  EXPECT_THAT(page.at("table").get<std::string>(), AllOf(HasSubstr("Eval loss"), HasSubstr("6.8123")));
  EXPECT_EQ(page.at("charts"), 3);
  EXPECT_EQ(page.at("bold"), 0) << "a sample is text";
}

TEST_F(ReportWords, ASingleEvaluationIsANumberAndNoEmptyChart) {
  Made row = made(), other = made();
  row.evaluations = {6.8123};
  other.config["strategy"] = "zero2";
  const json page = seen({write("row", row), write("other", other)}, R"(
    return {text: document.getElementById('training').textContent, charts: document.querySelectorAll('#training canvas').length};)");
  ASSERT_TRUE(page.is_object()) << page;
  EXPECT_THAT(page.at("text").get<std::string>(),
              AllOf(HasSubstr("The last evaluation"), HasSubstr("6.8123"),
                    HasSubstr("No shown row wrote one: --sample-every says when a run does.")));
  EXPECT_EQ(page.at("charts"), 2) << "of gradient norm and learning rate";
}

TEST_F(ReportWords, PathsOfObserversAreNoColumns) {
  Made row = made(), other = made();
  row.config["observe"] = other.config["observe"] = "csv";
  row.config["plugin_options"]["csv"]["file"] = "a.csv";
  other.config["plugin_options"]["csv"]["file"] = "b.csv";
  other.config["strategy"] = "zero2";
  const json page = seen({write("row", row), write("other", other)},
                         "return [...document.querySelectorAll('#rows th')].map((e) => e.textContent);");
  ASSERT_TRUE(page.is_array()) << page;
  EXPECT_THAT(page.dump(), AllOf(HasSubstr("strategy"), Not(HasSubstr("csv"))));
}

TEST_F(ReportWords, LinesThatLieOnEachOtherAreNamedAndAlternate) {
  Made row = made(), same = made(), other = made();
  same.config["strategy"] = "zero2";
  same.loss = 7.0005;  // less than a line is wide where others are at 7.5
  other.config["strategy"] = "zero3-offload";
  other.loss = 7.5;
  const json page = seen({write("row", row), write("same", same), write("other", other)}, R"(
    redraw(true);
    const sets = (label) => drawn.find((e) => e.canvas.getAttribute('aria-label').startsWith(label)).chart.data.datasets;
    const colours = (label) => Object.fromEntries(sets(label).map((d) => [d.label, d.borderColor]));
    return {text: document.getElementById('loss').textContent,
            dashes: Object.fromEntries(sets('Loss over').map((d) => [d.label, [...d.borderDash, d.borderDashOffset ?? 0]])),
            colours: colours('Loss over'), parity: colours('Relative difference'),
            legend: document.querySelectorAll('#loss .legend').length};)");
  ASSERT_TRUE(page.is_object()) << page;
  EXPECT_THAT(page.at("text").get<std::string>(), HasSubstr("The lines of ddp and zero2 lie on each other, dash by dash."));
  EXPECT_EQ(page.at("dashes"), (json{{"ddp", {14, 14, 0}}, {"zero2", {14, 14, -14}}, {"zero3-offload", {0}}}));
  for (const char* name : {"zero2", "zero3-offload"})
    EXPECT_EQ(page.at("parity").at(name), page.at("colours").at(name)) << "the legend is that of the chart above";
}

}  // namespace
}  // namespace consist
