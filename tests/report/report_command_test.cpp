// Arguments that `consist report` takes as one row, and those that it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/child_process.h"
#include "tests/report/made_archives.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using nlohmann::json;
using test::ChildResult;
using test::consist_says;
using test::data_of;
using test::version_1;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

TEST(ReportCommand, RunsOfOneConfigurationInOneFolderAreRepeatsOfARow) {
  const TemporaryFolder folder;
  const std::string old = version_1(folder);
  for (const char* name : {"fast", "slow"}) {
    std::filesystem::create_directory(folder / name);
    for (const char* file : {"1.h5", "2.h5"}) std::filesystem::copy_file(old, folder / (std::string(name) + "/" + file));
  }
  const ChildResult written = consist_says({"report", folder / "fast/1.h5", folder / "slow/1.h5", folder / "fast/2.h5",
                                            folder / "slow/2.h5", "-o", folder / "r.html"});
  ASSERT_EQ(written.status, 0) << written.output;
  const json rows = data_of(folder / "r.html").at("rows");
  ASSERT_EQ(rows.size(), 2U);
  for (const json& row : rows) EXPECT_EQ(row.at("run").at("repeats").size(), 2U);
  EXPECT_EQ(rows[0].at("values").at("label"), "fast:1");
  EXPECT_EQ(rows[1].at("values").at("label"), "slow:1");
}

TEST(ReportCommand, AnArchiveThatIsNamedTwiceIsOneRun) {
  const TemporaryFolder folder;
  const std::string old = version_1(folder);
  std::filesystem::create_symlink(old, folder / "link.h5");
  const ChildResult written = consist_says({"report", old, folder / "link.h5", old, "-o", folder / "r.html"});
  ASSERT_EQ(written.status, 0) << written.output;
  const json rows = data_of(folder / "r.html").at("rows");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].at("run").at("repeats").size(), 1U);
}

TEST(ReportCommand, RefusesWhatItCannotDo) {
  const TemporaryFolder folder;
  write_whole(folder / "letter.html", "<html>dear</html>");
  const std::string old = version_1(folder);
  const auto refused = [&](const Words& words, const std::string& why) {
    Words all{"report"};
    all.insert(all.end(), words.begin(), words.end());
    const ChildResult result = consist_says(all);
    EXPECT_NE(result.status, 0);
    EXPECT_THAT(result.output, HasSubstr(why));
  };
  refused({}, "needs the archive of a run");
  refused({folder / "none.h5"}, "cannot read");
  refused({folder / "letter.html", "-o", folder / "r.html"}, "letter.html");
  refused({old, "-o"}, "--output needs a value");
  refused({old, "-o", folder.path().string()}, "is a folder");
  refused({old, "-o", folder / "no/r.html"}, "make it first");
  refused({old, "-o", folder / "letter.html"}, "exists already; name another file");
  refused({old, "--colour"}, "has no option '--colour'");
  EXPECT_EQ(read_whole(folder / "letter.html"), "<html>dear</html>");
  EXPECT_FALSE(std::filesystem::exists(folder / "r.html"));
  EXPECT_EQ(consist_says({"report", old, "-o", folder / "letter.html", "--overwrite"}).status, 0);
  EXPECT_EQ(consist_says({"report", old, "-o", folder / "letter.html", "--title", "</script><b>"}).status, 0)
      << "a report is replaced";
  EXPECT_THAT(read_whole(folder / "letter.html"),
              ::testing::AllOf(HasSubstr("&lt;/script&gt;&lt;b&gt;"), Not(HasSubstr("</script><b>"))));
}

}  // namespace
}  // namespace consist
