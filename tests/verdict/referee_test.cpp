// Verdicts on the rows of a comparison while its runs go on.
#include "launch/verdict/referee.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "core/base/split.h"
#include "tests/verdict/side_archives.h"

namespace consist::launch {
namespace {

using test::SideArchive;
using test::Sides;
using ::testing::HasSubstr;

class Rows : public Sides {
 protected:
  /// A row with so many runs; `first` as side()'s.
  void add_row(const std::string& label, int runs, const SideArchive& made, int first) {
    CompareOutcome outcome{.status = "finished", .reason = {}, .disturbance = {}};
    outcome.same_program_as = rows_.size();
    const std::string names = side(label, runs, made, first);
    for (const std::string_view archive : split(names, ',')) outcome.runs.push_back(read_outcome(std::string(archive)));
    rows_.push_back({.varied = {}, .arguments = {}, .label = label});
    outcomes_.push_back(outcome);
  }

  std::vector<CompareRow> rows_;
  std::vector<CompareOutcome> outcomes_;
};

TEST_F(Rows, AreLookedAtUntilTheyAreDecided) {
  add_row("first", 3, {.noise = 0.004}, 0);
  add_row("slow", 3, {.seconds = 0.15, .noise = 0.004}, 1);
  add_row("wild", 3, {.noise = 0.3}, 1);
  add_row("longer", 3, {.noise = 0.3, .config = {{"/sequence", 64}}}, 1);
  Referee referee({.slower = 0.02}, {}, 60);
  EXPECT_TRUE(referee.look(rows_, outcomes_));
  EXPECT_TRUE(referee.wants(0)) << "the reference runs beside those that are not decided";
  EXPECT_FALSE(referee.wants(1));
  EXPECT_TRUE(referee.wants(2));
  EXPECT_FALSE(referee.wants(3)) << "more runs do not make it comparable";
  EXPECT_EQ(referee.exit_status(), 1);
  EXPECT_TRUE(referee.look(rows_, outcomes_));
  ASSERT_EQ(referee.rulings().size(), 3U);
  EXPECT_EQ(referee.rulings()[0].looks, 1) << "what is decided stays";
  EXPECT_EQ(referee.rulings()[1].looks, 2);
  EXPECT_DOUBLE_EQ(referee.rulings()[1].verdict.request.confidence, 1 - 0.05 / 6);
  EXPECT_THAT(referee.text(rows_), HasSubstr("B, slow: B is slower than A: -3"));
  const nlohmann::json json = referee.json();
  EXPECT_EQ(json.at(0).at("against"), 0);
  EXPECT_EQ(json.at(0).at("decided"), true);
  EXPECT_EQ(json.at(1).at("looks"), 2);
}

TEST_F(Rows, AreJudgedAgainstArchives) {
  const std::string reference = side("reference", 3, {.noise = 0.004}, 0);
  add_row("equal", 3, {.noise = 0.004}, 1);
  Referee referee({.within = 0.1, .slower = 0.1}, read_side(reference), 0);
  EXPECT_FALSE(referee.look(rows_, outcomes_));
  EXPECT_EQ(referee.exit_status(), 0);
  EXPECT_TRUE(referee.json().at(0).at("against").is_null());
  EXPECT_EQ(referee.rulings().front().verdict.speed().call, Call::same);
}

TEST_F(Rows, ThatDidNotRunAreNotJudged) {
  add_row("first", 3, {}, 0);
  add_row("same program", 3, {}, 1);
  outcomes_[1].same_program_as = 0;
  add_row("failed", 3, {}, 1);
  outcomes_[2].status = "failed";
  Referee referee({}, {}, 60);
  EXPECT_FALSE(referee.look(rows_, outcomes_));
  EXPECT_TRUE(referee.rulings().empty());
  EXPECT_EQ(referee.text(rows_), "");
}

}  // namespace
}  // namespace consist::launch
