// consist completion: bash asked as a person asks it, by the Tab key's function; the tables of commands. consist
// man: pages that groff takes without a warning.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <sstream>

#include "core/config/option_table.h"
#include "core/config/option_value.h"
#include "launch/cli/complete.h"
#include "launch/cli/man_page.h"
#include "launch/commands/commands.h"
#include "tests/child_process.h"
#include "tests/consist_program.h"
#include "tests/temporary_folder.h"

namespace consist::launch {
namespace {

using consist::test::program;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

std::set<std::string> lines_of(const std::string& text) {
  std::set<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.insert(line);
  return lines;
}

class Bash : public ::testing::Test {
 protected:
  /// Completions that bash offers for the words, the last of which is being typed, as its readline divides them.
  std::set<std::string> typed(const std::vector<std::string>& words) const {
    std::string list;
    for (const std::string& word : words) list += " '" + word + "'";
    const std::string script =
        "eval \"$(" + program + " completion bash)\" || exit 9; cd " + folder_.path().string() + "; COMP_WORDS=(" + program +
        list + "); COMP_CWORD=" + std::to_string(words.size()) +
        "; _consist || exit 8; complete -p consist >/dev/null || exit 7; printf '%s\\n' \"${COMPREPLY[@]}\"";
    const auto result = test::run_child({"bash", "--norc", "-c", script});
    EXPECT_EQ(result.status, 0) << result.output;
    std::set<std::string> lines = lines_of(result.output);
    lines.erase("");
    return lines;
  }
  TemporaryFolder folder_;
};

TEST_F(Bash, CompletesCommandsAndOptions) {
  EXPECT_THAT(typed({"tr"}), ElementsAre("train"));
  EXPECT_THAT(typed({""}),
              AllOf(IsSupersetOf({"train", "compare", "show", "watch", "completion", "man"}), Not(Contains("complete"))));
  EXPECT_THAT(typed({"train", "--eval"}), ElementsAre("--evaluate-every", "--evaluate-sequences"));
  EXPECT_THAT(typed({"compare", "--rep"}), ElementsAre("--repeats", "--report"));
  EXPECT_THAT(typed({"show", "--"}), ElementsAre("--help", "--json", "--price"));
  EXPECT_THAT(typed({"bench", "c"}), ElementsAre("collectives"));
  EXPECT_THAT(typed({"bench", "expect", "--eff"}), ElementsAre("--efficiency"));
  EXPECT_THAT(typed({"launch", "--nproc", "2", "--", "tr"}), ElementsAre("train"));
  EXPECT_THAT(typed({"launch", "--nproc", "2", "--", "train", "--precision", "bf"}), ElementsAre("bf16"));
  EXPECT_THAT(typed({"no-such-command", "--"}), IsEmpty());
}

TEST_F(Bash, CompletesValues) {
  EXPECT_THAT(typed({"train", "--precision", ""}), IsSupersetOf({"bf16", "fp32", "fp8"}));
  EXPECT_THAT(typed({"train", "--pack", ""}), ElementsAre("off", "on"));
  EXPECT_THAT(typed({"train", "--observe", "csv,ten"}), ElementsAre("csv,tensorboard"));
  EXPECT_THAT(typed({"train", "--model", "llama-ti"}), ElementsAre("llama-tiny"));
  EXPECT_THAT(typed({"predict", "--machine", "h"}), ElementsAre("h100", "h200"));
  EXPECT_THAT(typed({"tune", "--fit", ""}), ElementsAre("batch", "sequence"));
  EXPECT_THAT(typed({"plugins", "zero"}), ElementsAre("zero2", "zero3-offload"));
  EXPECT_THAT(typed({"train", "--steps", ""}), IsEmpty()) << "of a number there is nothing to choose";
}

// bash makes words of their own of '=' signs, and puts what it is given behind the last one.
TEST_F(Bash, CompletesBehindEqualSigns) {
  EXPECT_THAT(typed({"train", "--precision", "=", "bf"}), ElementsAre("bf16"));
  EXPECT_THAT(typed({"train", "--precision", "="}), IsSupersetOf({"bf16", "fp32"}));
  EXPECT_THAT(typed({"train", "--strategy", "tp-sp", "=", "2+pipe"}), ElementsAre("2+pipeline"));
  EXPECT_THAT(typed({"train", "--transport", "ddp", "=", "sock"}), ElementsAre("socket"));
}

TEST_F(Bash, CompletesOptionsOfParts) {
  EXPECT_THAT(typed({"train", "--zero2"}), ElementsAre("--zero2."));
  EXPECT_THAT(typed({"train", "--zero2.st"}), ElementsAre("--zero2.stage"));
  EXPECT_THAT(typed({"train", "--zero2.stage", ""}), ElementsAre("1", "2"));
  EXPECT_THAT(typed({"train", "--tensorboard."}), ElementsAre("--tensorboard.folder"));
  EXPECT_THAT(typed({"show", "--zero2"}), IsEmpty()) << "show trains nothing";
}

TEST_F(Bash, CompletesFilesAndFolders) {
  write_whole(folder_ / "a run.h5", "");
  write_whole(folder_ / "an.log", "");
  std::filesystem::create_directory(folder_ / "a-folder");
  EXPECT_THAT(typed({"show", "a"}), ElementsAre("a run.h5", "a-folder", "an.log"));
  EXPECT_THAT(typed({"train", "--archive", "a "}), ElementsAre("a run.h5"));
  EXPECT_THAT(typed({"train", "--checkpoint", "a"}), ElementsAre("a-folder"));
  EXPECT_THAT(typed({"train", "--archive", "=", "an"}), ElementsAre("an.log"));
}

TEST(Completion, JoinsTheWordsThatBashDivides) {
  std::size_t cut = 9;
  EXPECT_THAT(joined_words({"train", "--a", "=", "b", "c"}, cut), ElementsAre("train", "--a=b", "c"));
  EXPECT_EQ(cut, 0u);
  EXPECT_THAT(joined_words({"train", "--a", "="}, cut), ElementsAre("train", "--a="));
  EXPECT_EQ(cut, 4u);
  EXPECT_THAT(joined_words({"--s", "tp", "=", "2+d"}, cut), ElementsAre("--s", "tp=2+d"));
  EXPECT_EQ(cut, 3u);
  EXPECT_THAT(joined_words({"="}, cut), ElementsAre("="));
}

TEST(Completion, AsksNothingOfAPluginThatIsBroken) {
  TemporaryFolder folder;
  write_whole(folder / "strategy-broken.so", "no plugin");
  EXPECT_THAT(complete({"train", "--plugin", folder / "none", "--precision", ""}, commands::table()).words, IsEmpty());
  EXPECT_THAT(complete({"train", "--plugin", folder.path().string(), "--ranks", "1", "--sc"}, commands::table()).words,
              ElementsAre("--schedule"));
}

TEST(Completion, OfOtherShellsIsLegalWhereTheyAreThere) {
  TemporaryFolder folder;
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const auto script = test::run_child({program, "completion", shell});
    ASSERT_EQ(script.status, 0) << script.output;
    write_whole(folder / shell, script.output);
    if (test::run_child({"sh", "-c", "command -v " + shell}).status != 0) continue;
    const auto check = test::run_child({shell, "-n", folder / shell});
    EXPECT_EQ(check.status, 0) << shell << ": " << check.output;
  }
  const auto refused = test::run_child({program, "completion", "csh"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.output, HasSubstr("there is no completion for 'csh'; the shells are bash, zsh and fish"));
}

// Sentences are written by hand: an option that they name is there.
TEST(Commands, NameNoOptionThatTheyDoNotTake) {
  static const std::regex option("--([a-z][a-z0-9-]*)(?![a-z0-9.-])");
  std::set<std::string_view> names;
  for (const Command* command : commands::table()) {
    EXPECT_TRUE(names.insert(command->name).second) << command->name;
    if (command->is_hidden()) continue;
    EXPECT_STRNE(command->summary, "") << command->name;
    EXPECT_STRNE(command->example, "") << command->name;
    for (const TakenOption& taken : command->taken) EXPECT_NE(find_run_option(taken.name), nullptr) << taken.name;
    for (const RunOption& own : command->own) {
      if (*own.spec.fallback != '\0') EXPECT_NO_THROW(legal_value(own.spec, own.spec.fallback, own.spec.name)) << own.spec.name;
    }
    const std::string text = std::string(command->usage) + "\n" + command->about + command->notes;
    for (std::sregex_iterator at(text.begin(), text.end(), option), end; at != end; ++at) {
      const std::string name = (*at)[1];
      const auto takes = [&](const Command* other) { return other->find(name) != nullptr; };
      EXPECT_TRUE(std::ranges::any_of(commands::table(), takes)) << command->name << " --" << name;
    }
  }
}

TEST(ManPages, AreTakenByGroffWithoutAWarning) {
  TemporaryFolder folder;
  const auto written = test::run_child({program, "man", "--output", folder / "man1"});
  ASSERT_EQ(written.status, 0) << written.output;
  int pages = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "man1")) {
    ++pages;
    const std::string text = read_whole(entry.path().string());
    EXPECT_THAT(text, AllOf(::testing::StartsWith(".TH \"CONSIST"), HasSubstr(".SH NAME\n"), HasSubstr(".SH SYNOPSIS\n"),
                            HasSubstr(".SH DESCRIPTION\n")));
    if (test::run_child({"sh", "-c", "command -v groff"}).status != 0) continue;
    const auto set = test::run_child({"groff", "-man", "-ww", "-Tutf8", "-z", "-K", "utf8", entry.path().string()});
    EXPECT_EQ(set.status, 0) << entry.path();
    EXPECT_EQ(set.output, "") << entry.path();
  }
  const auto shown = std::ranges::count_if(commands::table(), [](const Command* command) { return !command->is_hidden(); });
  EXPECT_EQ(pages, static_cast<int>(shown) + 1);
  EXPECT_EQ(test::run_child({program, "man", "nothing"}).status, 2);
}

TEST(ManPages, StateEveryOptionOfTrain) {
  const std::string page = test::run_child({program, "man", "train"}).output;
  for (const RunOption& option : run_option_table()) {
    std::string name = option.spec.name;
    name = std::regex_replace(name, std::regex("-"), "\\-");
    EXPECT_THAT(page, HasSubstr(".TP\n\\fB\\-\\-" + name + "\\fR"));
  }
  EXPECT_THAT(page, AllOf(HasSubstr("It is a whole number of 64 bits, at least 1.\nDefault: 100.\n"), Not(HasSubstr("\n'"))));
}

TEST(ManPages, EscapeWhatTroffWouldObey) {
  const Command command{.name = "x", .summary = "a", .usage = "x", .about = ".so /etc/passwd\n'quoted \\fB\n"};
  EXPECT_THAT(man_page(command, "1"), AllOf(HasSubstr("\n\\&.so /etc/passwd\n"), HasSubstr("\n\\&'quoted \\(rsfB\n")));
}

}  // namespace
}  // namespace consist::launch
