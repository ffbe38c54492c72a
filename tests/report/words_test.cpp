// No sentence of a report contradicts its table, and what training did besides its loss is there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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
using test::write_made;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class ReportWords : public ReportInABrowser {
 protected:
  void SetUp() override {
    ReportInABrowser::SetUp();
    if (IsSkipped()) return;
    real_.emplace(new_run(folder_));
  }
  Made made() const { return made_from(*real_); }
  std::string write(const std::string& name, const Made& row) { return write_made(folder_ / (name + ".h5"), *real_, row); }
  /// What `script` returns on the page of these archives.
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
  EXPECT_THAT(page.at("text").get<std::string>(), testing::ContainsRegex("zero2 takes .* longer"));
}

TEST_F(ReportWords, AdviceThatARowOfThePageIsStandsBesideWhatItMeasured) {
  Made plain = made(), other = made();
  plain.events = {{"advice", "--strategy zero2: 1.25 times as fast, predicted"}, {"advice", "--batch 8: 1.10 times as fast"}};
  other.config["strategy"] = "zero2";
  other.seconds = 0.099;
  const json page = seen({write("plain", plain), write("other", other)}, "return document.getElementById('answer').textContent;");
  ASSERT_TRUE(page.is_string()) << page;
  EXPECT_THAT(page.get<std::string>(),
              AllOf(testing::ContainsRegex("--strategy zero2: simulated 1.25 times as fast, predicted; measured here 1.0[0-9]"),
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

TEST_F(ReportWords, LinesThatCoverEachOtherAreSaidToBeTheSame) {
  Made row = made(), same = made(), other = made();
  same.config["strategy"] = "zero2";
  other.config["strategy"] = "zero3-offload";
  other.loss = 7.5;
  const json page = seen({write("row", row), write("same", same), write("other", other)}, R"(
    redraw(true);
    return {text: document.getElementById('loss').textContent,
            widths: drawn.find((e) => e.canvas.getAttribute('aria-label').startsWith('Loss over')).chart.data.datasets
                        .map((d) => d.borderWidth)};)");
  ASSERT_TRUE(page.is_object()) << page;
  EXPECT_THAT(page.at("text").get<std::string>(), HasSubstr("The lines of ddp and zero2 are the same"));
  const auto widths = page.at("widths").get<std::vector<double>>();
  EXPECT_LT(*std::min_element(widths.begin(), widths.end()), *std::max_element(widths.begin(), widths.end()));
}

}  // namespace
}  // namespace consist
