// consist new: templates fit the examples that they are made of, names are checked, and nothing is overwritten. tests/external
// builds what it writes.
#include "launch/templates/new_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "consist/error.h"
#include "tests/child_process.h"
#include "tests/temporary_folder.h"

namespace consist::launch {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* examples = CONSIST_SOURCE_DIR "/tests/external";

template <typename E, typename Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(PartTemplates, EachGivesAPartOfItsNameAndKeepsNothingOfItsExamples) {
  for (const PartTemplate& part : part_templates()) {
    SCOPED_TRACE(part.kind);
    const auto files = files_of_part(part, "tidy-squares", examples);
    ASSERT_TRUE(files.contains("CMakeLists.txt") && files.contains("README.md"));
    EXPECT_THAT(files.at("CMakeLists.txt"),
                AllOf(HasSubstr("consist_add_plugin(tidy-squares KIND " + std::string(part.plugin_kind) + " SOURCES "),
                      HasSubstr("project(MyTidySquares VERSION"), HasSubstr("tidy-squares.train"), Not(HasSubstr(" build/"))));
    EXPECT_THAT(files.at("README.md"), ::testing::StartsWith("# tidy-squares\n"));
    std::string all;
    for (const auto& [name, text] : files) {
      all += text;
      EXPECT_THAT(text, AllOf(Not(HasSubstr("{name}")), Not(HasSubstr("{Class}")), Not(HasSubstr("{snake}")))) << name;
    }
    EXPECT_THAT(all, HasSubstr("CONSIST_PLUGIN(" + std::string(part.plugin_kind) + ", "));
    EXPECT_THAT(all, AllOf(HasSubstr(", \"tidy-squares\","), HasSubstr("class MyTidySquares")));
    for (const Replacement& one : part.replacements) EXPECT_THAT(all, Not(HasSubstr(std::string(one.from)))) << one.from;
  }
}

// One pass over the text: what a name puts in is not replaced again.
TEST(PartTemplates, ANameMayHoldTheExamples) {
  const auto files = files_of_part(part_template("schedule"), "my-trapezoid", examples);
  EXPECT_THAT(files.at("schedule.cpp"),
              AllOf(HasSubstr("class MyTrapezoid final"), HasSubstr("\"my-trapezoid\""), Not(HasSubstr("my-my"))));
}

TEST(PartTemplates, ATemplateThatDoesNotFitIsAnError) {
  const TemporaryFolder folder;
  EXPECT_THAT(refusal<SystemError>([&] { files_of_part(part_template("schedule"), "a", folder.path()); }),
              HasSubstr("trapezoid/CMakeLists.txt"));
  fs::copy(fs::path(examples) / "trapezoid", folder.path() / "trapezoid");
  EXPECT_EQ(files_of_part(part_template("schedule"), "a", folder.path()).size(), 3u);
  write_whole(folder / "trapezoid/schedule.cpp", "// trapezoid\n");
  write_whole(folder / "trapezoid/CMakeLists.txt", "# trapezoid\n");
  EXPECT_THAT(refusal<ProgramError>([&] { files_of_part(part_template("schedule"), "a", folder.path()); }),
              AllOf(HasSubstr("template of schedule does not fit"), HasSubstr("'Trapezoid'")));
}

TEST(PartTemplates, NamesAreWordsOfSmallLetters) {
  for (const char* legal : {"a", "my-average", "lion2", "x-1", "twenty-three-characters"})
    EXPECT_NO_THROW(check_part_name(legal)) << legal;
  for (const char* illegal : {"", "My", "1a", "-a", "a-", "a--b", "a_b", "a.b", "a/b", "..", "a b", "\xc3\xa4"})
    EXPECT_THAT(refusal<UsageError>([&] { check_part_name(illegal); }), HasSubstr("it must be words of small letters"))
        << illegal;
  EXPECT_THAT(refusal<UsageError>([] { check_part_name("twenty-four-characters-x"); }),
              HasSubstr("has 24 characters; at most 23"));
}

struct Refused {
  std::vector<std::string> words;
  const char* message;
};

TEST(NewCommand, RefusesWhatItCannotWriteAndWritesNothing) {
  const TemporaryFolder folder;
  write_whole(folder / "file", "kept");
  for (const auto& [words, message] :
       {Refused{{"strategi", "a"},
                "there is no template of the kind 'strategi'. There are: strategy optimizer op model loss dataset observer schedule. "
                "Did you mean 'strategy'?"},
        Refused{{"strategy"}, "needs a kind and a name, given are 1 words"}, Refused{{"strategy", "a", "b"}, "given are 3 words"},
        Refused{{"strategy", "My Average"}, "the name is 'My Average'; it must be"},
        Refused{{"strategy", "a", "--into", folder.path().string()}, "is not empty, and nothing in it is replaced"},
        Refused{{"strategy", "a", "--into", folder / "file"}, "is there and no folder"},
        Refused{{"strategy", "a", "--into", ""}, "--into is empty; it names the folder to write"},
        Refused{{"strategy", "a", "--into", folder / "new"}, "there is no SDK around this executable"}}) {
    std::vector<std::string> line{CONSIST_BINARY_DIR "/bin/consist", "new"};
    line.insert(line.end(), words.begin(), words.end());
    const test::ChildResult result = test::run_child(line);
    EXPECT_EQ(result.status, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr(message));
  }
  EXPECT_EQ(read_whole(folder / "file"), "kept");
  EXPECT_FALSE(fs::exists(folder / "new"));
}

}  // namespace
}  // namespace consist::launch
