// The first screen of a report on two runs, for a reader who was not there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A run over a fast link and the same over a slow one, by which each collective takes 30 ms longer.
TEST_F(ReportInABrowser, TheAnswerSaysWhichCommunicationMakesTheDifference) {
  const TemporaryFolder folder;
  const ArchiveReader real(new_run(folder));
  Made fast = made_from(real);
  fast.config["transport"] = "socket";
  Made slow = fast;
  for (json& axis : slow.topology.at("axes")) axis["transport"] = "string";
  slow.config["transport"] = "string";
  json& of_class = slow.timeline.at("classes")[0];
  double longer = 0;
  for (std::size_t n = 0; n < of_class.at("instructions").at("op").size(); ++n) {
    if (of_class.at("instructions").at("work")[n] != "communication") continue;
    for (const char* column : {"seconds", "exposed"}) {
      json& value = of_class.at("instructions").at(column)[n];
      value = value.get<double>() + 0.03;
    }
    longer += 0.03;
  }
  ASSERT_GT(longer, 0);
  slow.seconds += longer;
  json& waits = of_class.at("parts").at("exposed_communication")["data"];
  waits = waits.get<double>() + longer;
  of_class["step_seconds"] = of_class.at("step_seconds").get<double>() + longer;
  const ChildResult written = consist_says({"report", write_made(folder / "fast.h5", real, fast),
                                            write_made(folder / "slow.h5", real, slow), "-o", folder / "report.html"});
  ASSERT_EQ(written.status, 0) << written.output;
  std::vector<std::string> console;
  const json seen = evaluate(folder / "report.html", R"(
    openPart('communication:data');
    return {answer: document.getElementById('answer').textContent, about: document.getElementById('about').textContent,
            open: document.querySelector('[data-part="communication:data"] .open').getAttribute('aria-expanded'),
            program: [...document.querySelectorAll('#parts .program pre')].map((p) => p.textContent)};)",
                             &console);
  EXPECT_THAT(console, IsEmpty());
  ASSERT_TRUE(seen.is_object()) << seen;
  const std::string answer = seen.at("answer").get<std::string>();
  EXPECT_THAT(answer, HasSubstr("They differ in transport (string and socket)"));
  EXPECT_THAT(answer, ::testing::ContainsRegex(
                          "string takes .* longer per step: waiting for communication \\(data\\) \\+[0-9.]+ ms, [0-9]+% of it"));
  EXPECT_THAT(answer, ::testing::AllOf(HasSubstr("(all_reduce of ddp over string: "), HasSubstr(" over socket; "),
                                       HasSubstr("% of its step instead of ")));
  EXPECT_THAT(seen.at("about").get<std::string>(), HasSubstr("All: strategy ddp, ranks 2, precision fp32"));
  EXPECT_EQ(seen.at("open"), "true");
  ASSERT_FALSE(seen.at("program").empty());
  EXPECT_THAT(seen.at("program")[0].get<std::string>(), HasSubstr(" = all_reduce("));
}

TEST_F(ReportInABrowser, TheAnswerSaysWhatAPrecisionHides) {
  const TemporaryFolder folder;
  for (const char* precision : {"fp32", "bf16"}) {
    const ChildResult result =
        test::train_tiny({"--precision", precision, "--steps", "6", "--archive", folder / (std::string(precision) + ".h5")});
    ASSERT_EQ(result.status, 0) << result.output;
  }
  const ChildResult written = consist_says({"report", folder / "fp32.h5", folder / "bf16.h5", "-o", folder / "report.html"});
  ASSERT_EQ(written.status, 0) << written.output;
  const json seen = evaluate(folder / "report.html", "return document.getElementById('answer').textContent;");
  ASSERT_TRUE(seen.is_string()) << seen;
  EXPECT_THAT(
      seen.get<std::string>(),
      ::testing::AllOf(HasSubstr("They differ in precision ("), HasSubstr("What the precision hides: Products and attention"),
                       HasSubstr("Compare these at one precision. Their final losses differ by ")));
}

/// Version 2 from before archives had programs: all is there but their text.
TEST_F(ReportInABrowser, ArchivesWithoutProgramsOpen) {
  const TemporaryFolder folder;
  const ArchiveReader real(new_run(folder));
  Made made = made_from(real), other = made;
  made.programs.clear();
  other.programs.clear();
  other.config["batch"] = 2;
  other.seconds = 0.2;
  const ChildResult written = consist_says({"report", write_made(folder / "a.h5", real, made),
                                            write_made(folder / "b.h5", real, other), "-o", folder / "report.html"});
  ASSERT_EQ(written.status, 0) << written.output;
  std::vector<std::string> console;
  const json seen = evaluate(folder / "report.html", R"(
    openPart('products');
    return {text: document.querySelector('#parts .fold:not([hidden])').textContent,
            programs: document.querySelectorAll('#parts .program').length};)",
                             &console);
  EXPECT_THAT(console, IsEmpty());
  ASSERT_TRUE(seen.is_object()) << seen;
  EXPECT_THAT(seen.at("text").get<std::string>(), HasSubstr("linear"));
  EXPECT_EQ(seen.at("programs"), 0);
}

}  // namespace
}  // namespace consist
