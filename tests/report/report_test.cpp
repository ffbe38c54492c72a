// The page of a comparison: what it says is what the archives say, and a browser shows it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/archive/archive.h"
#include "core/archive/reader.h"
#include "tests/child_process.h"
#include "tests/report/browser.h"
#include "tests/report/made_archives.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using nlohmann::json;
using test::ChildResult;
using test::consist_says;
using test::data_of;
using test::evaluate;
using test::Made;
using test::made_from;
using test::new_run;
using test::no_chromium;
using test::ReportInABrowser;
using test::version_1;
using test::write_made;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Words = std::vector<std::string>;

void expect_what_the_archives_say(const json& data) {
  ASSERT_EQ(data.at("rows").size(), 8U);
  for (const json& row : data.at("rows")) {
    SCOPED_TRACE(row.at("label").get<std::string>());
    ASSERT_EQ(row.at("status"), "finished");
    const json& run = row.at("run");
    ASSERT_GE(run.at("repeats").size(), 2U);
    const ArchiveReader archive(run.at("repeats")[0].at("archive").get<std::string>());
    EXPECT_EQ(row.at("figures").at("final_loss"), archive.column("loss").back());
    EXPECT_EQ(row.at("figures").at("planned_bytes"), json::parse(archive.text("/result")).at("planned_bytes"));
    EXPECT_EQ(json(run.at("result")), json::parse(archive.text("/result")));
    const json& curves = run.at("curves").at("columns");
    for (const char* name : {"step", "loss", "tokens_per_second", "grad_norm"}) {
      const std::vector<double> values = archive.column(name);
      ASSERT_EQ(curves.at(name).size(), values.size()) << name;
      for (std::size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(curves.at(name)[i].get<double>(), values[i], 1e-6 * std::abs(values[i])) << name;
    }
    double log_sum = 0;
    for (const json& repeat : run.at("repeats")) log_sum += std::log(repeat.at("tokens_per_second").get<double>());
    if (row.at("disturbance") == "" && row.at("speed").at("count") == run.at("repeats").size()) {
      EXPECT_NEAR(row.at("speed").at("mean").get<double>(), std::exp(log_sum / static_cast<double>(run.at("repeats").size())),
                  1e-6);
    }
  }
}

void expect_parts_of_the_timelines(const json& data) {
  for (const json& row : data.at("rows")) {
    SCOPED_TRACE(row.at("label").get<std::string>());
    const json& time = row.at("run").at("time");
    ASSERT_EQ(time.at("source"), "measured");
    double sum = 0, products = 0, of_items = 0;
    for (const auto& [name, seconds] : time.at("parts").items()) sum += seconds.get<double>();
    EXPECT_NEAR(sum, row.at("figures").at("step_seconds").get<double>(), 1e-6 * sum);
    for (const json& item : time.at("items")) {
      if (data.at("texts")[item[0].get<std::size_t>()] == "products") of_items += item[4].get<double>();
    }
    EXPECT_NEAR(of_items, time.at("parts").at("products").get<double>(), 1e-3 * of_items + 1e-6);
    if (row.at("run").at("repeats").size() != 2 || row.at("disturbance") != "") continue;
    int runs = 0;
    for (const json& repeat : row.at("run").at("repeats")) {
      if (repeat.at("disturbance") != "") continue;
      const json timeline = json::parse(ArchiveReader(repeat.at("archive").get<std::string>()).packed_text("/timeline"));
      products += timeline.at("classes")[0].at("parts").at("products").get<double>();
      ++runs;
    }
    EXPECT_NEAR(time.at("parts").at("products").get<double>(), products / runs, 1e-9);
  }
}

/// Measurements of such short runs are left to chance: a verdict names a fastest exactly where the data has one.
void expect_verdicts(const json& data, const json& verdicts) {
  ASSERT_EQ(verdicts.size(), 2U);
  for (std::size_t n = 0; n < 2; ++n) {
    const json& model = data.at("models")[n];
    const bool is_sure = model.at("leaders") == 1;
    const std::string verdict = verdicts[n].get<std::string>();
    EXPECT_THAT(verdict, ::testing::StartsWith(model.at("model").get<std::string>()));
    EXPECT_EQ(verdict.find(" is the fastest: ") != std::string::npos, is_sure) << verdict;
    EXPECT_EQ(verdict.find("cannot be told apart") != std::string::npos || verdict.find("not certain") != std::string::npos,
              !is_sure)
        << verdict;
  }
}

void expect_every_section_without_an_error(const std::string& page) {
  std::vector<std::string> console;
  const json seen = evaluate(page, R"(
    const text = (id) => document.getElementById(id).textContent;
    redraw(true);
    const sum = document.getElementById('sum');
    return {ready: document.documentElement.dataset.ready, rows: document.querySelectorAll('#rows tbody tr').length,
            sum: Number(sum.dataset.sum), difference: Number(sum.dataset.difference), answer: text('answer'), why: text('why'),
            charts: drawn.map((e) => e.chart !== null && e.canvas.getAttribute('aria-label').length > 10),
            verdicts: [...document.querySelectorAll('.verdict')].map((e) => e.textContent),
            empty: [...document.querySelectorAll('.empty')].map((e) => e.textContent),
            ranks: [...shownRuns].map((n) => rows[n].values.ranks),
            loaded: performance.getEntriesByType('resource').length};)",
                             &console);
  EXPECT_THAT(console, IsEmpty());
  ASSERT_TRUE(seen.is_object()) << seen;
  EXPECT_EQ(seen.at("ready"), "yes");
  EXPECT_EQ(seen.at("rows"), 8);
  EXPECT_EQ(seen.at("loaded"), 0) << "the page asked for something else";
  const double difference = seen.at("difference").get<double>();
  ASSERT_NE(difference, 0);
  EXPECT_NEAR(seen.at("sum").get<double>(), difference, 0.01 * std::abs(difference));
  expect_verdicts(data_of(page), seen.at("verdicts"));
  EXPECT_GE(seen.at("charts").size(), 6U);
  for (const json& chart : seen.at("charts")) EXPECT_EQ(chart, true);
  // A processor has no sensors, and runs of one rank have no axis; all else is there.
  const auto ranks = seen.at("ranks").get<Words>();
  Words empty{"Use, power and clocks: no sensor was recorded. The device cpu has none, or its driver does not tell."};
  if (std::count(ranks.begin(), ranks.end(), "1") == static_cast<std::ptrdiff_t>(ranks.size()))
    empty.emplace_back("No axis of the mesh: these runs have one rank, or were not run.");
  EXPECT_EQ(seen.at("empty").get<Words>(), empty);
}

void expect_sums_of_every_pair(const std::string& page) {
  const json seen = evaluate(page, R"(
    const worst = [];
    for (const a of rows) for (const b of rows) {
      if (a === b) continue;
      const d = difference(a, b), total = d.b - d.a, parts = d.parts.reduce((s, p) => s + p.difference, 0);
      worst.push(Math.abs(parts - total) / Math.abs(total));
    }
    return worst;)");
  ASSERT_EQ(seen.size(), 56U);
  for (const json& off : seen) EXPECT_LT(off.get<double>(), 0.01);
}

void expect_sorting_filtering_and_opening(const std::string& page) {
  std::vector<std::string> console;
  const json seen = evaluate(page, R"(
    const column = (n) => [...document.querySelectorAll('#rows tbody tr')].map((r) => r.children[n].textContent);
    const button = [...document.querySelectorAll('#rows th button')].find((b) => b.textContent === 'Step');
    const at = [...button.closest('tr').children].indexOf(button.closest('th'));
    button.click();
    const down = {order: column(at), sort: button.closest('th').getAttribute('aria-sort')};
    button.click();
    const up = {order: column(at), sort: button.closest('th').getAttribute('aria-sort')};
    const filter = document.querySelector('#table select');
    filter.value = '1';
    filter.dispatchEvent(new Event('change'));
    const filtered = column(0);
    const part = document.querySelector('#parts .open');
    part.focus();
    const focused = document.activeElement === part;
    part.click();
    const fold = document.getElementById(part.getAttribute('aria-controls'));
    return {down, up, filtered, focused, expanded: part.getAttribute('aria-expanded'), hidden: fold.hidden, fold: fold.textContent};)",
                             &console);
  EXPECT_THAT(console, IsEmpty());
  ASSERT_TRUE(seen.is_object()) << seen;
  EXPECT_EQ(seen.at("down").at("sort"), "descending");
  EXPECT_EQ(seen.at("up").at("sort"), "ascending");
  std::vector<std::string> reversed = seen.at("up").at("order").get<std::vector<std::string>>();
  std::reverse(reversed.begin(), reversed.end());
  EXPECT_EQ(seen.at("down").at("order").get<std::vector<std::string>>(), reversed);
  EXPECT_EQ(seen.at("filtered").size(), 4U);
  EXPECT_EQ(seen.at("focused"), true);
  EXPECT_EQ(seen.at("expanded"), "true");
  EXPECT_EQ(seen.at("hidden"), false);
  EXPECT_THAT(seen.at("fold").get<std::string>(), HasSubstr("linear"));
}

// 350 pixels are what a window of 1,400 has at a zoom of 400%.
void expect_no_sideways_scrolling(const std::string& page) {
  for (const int width : {350, 400, 1400}) {
    SCOPED_TRACE(width);
    std::vector<std::string> console;
    const json seen = evaluate(page, R"(
      const right = (element) => Math.floor(element.getBoundingClientRect().right);
      return {page: document.documentElement.scrollWidth, captions: [...document.querySelectorAll('.caption')].map(right),
              speed: right([...document.querySelectorAll('#rows th')].find((h) => h.textContent === 'Tokens/s'))};)",
                               &console, width);
    EXPECT_THAT(console, IsEmpty());
    ASSERT_TRUE(seen.is_object()) << seen;
    EXPECT_LE(seen.at("page").get<int>(), width) << "the page scrolls sideways";
    EXPECT_THAT(seen.at("captions"), ::testing::Each(::testing::Le(width))) << "captions are read without scrolling";
    if (width >= 400) EXPECT_LE(seen.at("speed").get<int>(), width) << "the speed is cut off";
  }
}

void expect_pictures(const std::string& page) {
  const TemporaryFolder folder;
  for (const int width : {400, 1400}) {
    const std::string picture = folder / (std::to_string(width) + ".png");
    test::open_page(page, width, 1200, {"--screenshot=" + picture});
    ASSERT_TRUE(std::filesystem::exists(picture));
    EXPECT_GT(std::filesystem::file_size(picture), 20'000U) << "an empty page";
  }
}

/// The quickstart's eight configurations, with shorter steps and fewer of them. One test, since they are run once.
TEST(Report, OfTheQuickstartsEightRuns) {
  const TemporaryFolder folder;
  const std::string page = folder / "runs/report.html";  // in a folder that compare makes
  const ChildResult result = consist_says({"compare",
                                           "--model",
                                           "llama-tiny,qwen3-tiny",
                                           "--strategy",
                                           "ddp",
                                           "--ranks",
                                           "1,2",
                                           "--precision",
                                           "fp32,bf16",
                                           "--dataset",
                                           "synthetic",
                                           "--sequence",
                                           "32",
                                           "--global-batch",
                                           "4",
                                           "--steps",
                                           "6",
                                           "--repeats",
                                           "2",
                                           "--output",
                                           folder / "runs",
                                           "--report",
                                           page});
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_LT(std::filesystem::file_size(page), 2'000'000U);
  const json data = data_of(page);
  expect_what_the_archives_say(data);
  expect_parts_of_the_timelines(data);
  if (test::chromium().empty()) GTEST_SKIP() << no_chromium;
  expect_every_section_without_an_error(page);
  expect_sums_of_every_pair(page);
  expect_sorting_filtering_and_opening(page);
  expect_no_sideways_scrolling(page);
  expect_pictures(page);
}

TEST_F(ReportInABrowser, ArchivesOfVersion1OpenAndSayWhatTheyLack) {
  const TemporaryFolder folder;
  const std::string old = version_1(folder);
  EXPECT_EQ(ArchiveReader(old).version(), 1);
  EXPECT_EQ(ArchiveReader(old).packed_text("/timeline"), "");
  const ChildResult written = consist_says({"report", old, new_run(folder), "-o", folder / "report.html"});
  ASSERT_EQ(written.status, 0) << written.output;
  std::vector<std::string> console;
  const json seen = evaluate(folder / "report.html", R"(
    return {why: document.getElementById('why').textContent, table: document.getElementById('table').textContent,
            loss: document.querySelectorAll('#loss canvas').length};)",
                             &console);
  EXPECT_THAT(console, IsEmpty());
  ASSERT_TRUE(seen.is_object()) << seen;
  EXPECT_THAT(seen.at("why").get<std::string>(), HasSubstr("Archives of version 1 hold no times of instructions"));
  EXPECT_THAT(seen.at("table").get<std::string>(), HasSubstr("bf16"));
  EXPECT_GE(seen.at("loss").get<int>(), 1);
}

TEST_F(ReportInABrowser, MetricsOfTheLossHaveCurvesWhereARowReportsThem) {
  const TemporaryFolder folder;
  const ArchiveReader real(new_run(folder));
  Made made = made_from(real);
  const std::string silent = write_made(folder / "silent.h5", real, made);
  made.config["recompute"] = "full";  // a row of its own
  made.metrics = {{"preference_accuracy", 0.75}, {"reward_margin", 0}};
  made.loss_unit = "nat/pair";
  const std::string reports = write_made(folder / "reports.h5", real, made);
  const ChildResult written = consist_says({"report", silent, reports, "-o", folder / "report.html"});
  ASSERT_EQ(written.status, 0) << written.output;
  std::vector<std::string> console;
  const json seen =
      evaluate(folder / "report.html", "return [...document.querySelectorAll('#loss h3')].map((h) => h.textContent);", &console);
  EXPECT_THAT(console, IsEmpty());
  EXPECT_THAT(seen.get<std::vector<std::string>>(), ::testing::IsSupersetOf({"preference_accuracy", "reward_margin"}));
  const json caption = evaluate(folder / "report.html", "return document.querySelector('#loss p').textContent;", &console);
  EXPECT_EQ(caption.get<std::string>(), "Mean loss of each step, in nat/token or nat/pair.");
}

TEST_F(ReportInABrowser, PredictionsHavePartsAndNoRuns) {
  const TemporaryFolder folder;
  const ChildResult written = consist_says({"compare", "--predict", "--model", "llama-tiny", "--strategy", "ddp,zero3-offload",
                                            "--ranks", "4", "--precision", "fp32,bf16", "--sequence", "256", "--batch", "2",
                                            "--machine", "h200", "--report", folder / "report.html"});
  ASSERT_EQ(written.status, 0) << written.output;
  std::vector<std::string> console;
  const json seen = evaluate(
      folder / "report.html",
      "return {why: document.getElementById('why').textContent, sum: document.getElementById('sum').dataset};", &console);
  EXPECT_THAT(console, IsEmpty());
  ASSERT_TRUE(seen.is_object()) << seen;
  EXPECT_THAT(seen.at("why").get<std::string>(), HasSubstr("predicted, not measured"));
  const double difference = std::stod(seen.at("sum").at("difference").get<std::string>());
  EXPECT_NEAR(std::stod(seen.at("sum").at("sum").get<std::string>()), difference, 0.01 * std::abs(difference));
}

/// A step of eight ranks' replicas trains on eight times the tokens of a tensor-parallel one, and takes longer.
TEST_F(ReportInABrowser, PredictedStepsOfDifferentNumbersOfTokensAreComparedByTokens) {
  const TemporaryFolder folder;
  const ChildResult written =
      consist_says({"compare", "--predict", "--model", "llama-3.2-1b", "--strategy", "ddp,tp-sp=8", "--ranks", "8", "--precision",
                    "bf16", "--sequence", "4096", "--batch", "1", "--machine", "h200", "--report", folder / "report.html"});
  ASSERT_EQ(written.status, 0) << written.output;
  const json seen = evaluate(folder / "report.html", R"(
    return {answer: document.getElementById('answer').textContent, why: document.getElementById('why').textContent};)");
  ASSERT_TRUE(seen.is_object()) << seen;
  EXPECT_THAT(
      seen.at("answer").get<std::string>(),
      ::testing::AllOf(HasSubstr("ddp is the fastest"), HasSubstr("Steps of these rows train on different numbers of tokens")));
  EXPECT_THAT(seen.at("why").get<std::string>(),
              ::testing::AllOf(::testing::ContainsRegex("ddp is [1-9][.0-9]*× the speed of tp-sp=8\\."),
                               ::testing::ContainsRegex("tp-sp=8 takes [.0-9]+ ms longer per 1,000 tokens")));
}

/// 200 archives with the timeline of a real run, each of another configuration and with a program of its own.
TEST_F(ReportInABrowser, TwoHundredRunsStayUnderFiveMegabytes) {
  const TemporaryFolder folder;
  const ArchiveReader real(new_run(folder));
  const Made made = made_from(real);
  Words words{"report"};
  for (int n = 0; n < 200; ++n) {
    Made row = made;
    row.config["batch"] = n + 1;
    row.config["strategy"] = n % 2 == 0 ? "ddp" : "zero2";
    row.seconds += 0.001 * n;
    json programs = json::parse(made.programs);
    std::istringstream lines(programs.at("classes")[0].at("text").get<std::string>());
    std::string text;
    for (std::string line; std::getline(lines, line);) text += line + " " + std::to_string(1000 + n) + "\n";
    programs["classes"][0]["text"] = text;
    row.programs = programs.dump();
    words.push_back(write_made(folder / (std::to_string(n) + ".h5"), real, row));
  }
  words.insert(words.end(), {"-o", folder / "report.html"});
  const ChildResult written = consist_says(words);
  ASSERT_EQ(written.status, 0) << written.output;
  EXPECT_LT(std::filesystem::file_size(folder / "report.html"), 5'000'000U);
  std::vector<std::string> console;
  const json seen = evaluate(folder / "report.html", "return document.querySelectorAll('#rows tbody tr').length;", &console);
  EXPECT_THAT(console, IsEmpty());
  EXPECT_EQ(seen, 200);
}

}  // namespace
}  // namespace consist
