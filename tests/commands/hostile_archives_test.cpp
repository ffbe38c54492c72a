// Archives from somebody else: whatever a file says, no command runs, reads or replaces anything outside of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <sstream>

#include "consist/error.h"
#include "consist/text.h"
#include "core/archive/past.h"
#include "core/archive/reader.h"
#include "launch/cli/run_options.h"
#include "launch/commands/commands.h"
#include "launch/view/watch/frame.h"
#include "launch/view/watch/watched_runs.h"
#include "tests/child_process.h"
#include "tests/commands/run_archives.h"
#include "tests/python.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* secret = "PLANTED-SECRET-7f3a91";

PluginHost& plugin_host() {
  static PluginHost plugin_host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  return plugin_host;
}

/// Names, sizes and contents of all files below a folder.
std::map<std::string, std::string> snapshot(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files[entry.path().string()] = read_whole(entry.path().string());
  }
  return files;
}

/// The output of a command that reads a file, on both streams, and the message that it ends with.
std::string said_by(const std::function<void()>& command) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  std::string error;
  try {
    command();
  } catch (const std::exception& thrown) {
    error = printable(thrown.what());  // as main() prints it
    EXPECT_NE(error, "");
  }
  return ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr() + error;
}

class HostileArchives : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(folder_ / "made");
    auto run = test::write_run(folder_ / "good.h5", {.done = 100});
    for (const char* text : {"a", "b"}) run->event(1.7e9, "checkpoint", text);
    test::finish_run(*run);
    run.reset();
    write_whole(folder_ / "secret.txt", std::string(secret) + "\n");
  }
  /// Paths of the archives that hurt.
  std::vector<std::string> make(const std::string& python) const {
    const PythonResult made = run_python(python, {CONSIST_SOURCE_DIR "/tests/commands/hostile_archives.py", folder_ / "good.h5",
                                                  folder_ / "made", folder_ / "secret.txt"});
    EXPECT_EQ(made.status, 0) << made.output;
    std::vector<std::string> paths;
    std::istringstream names(made.output);
    for (std::string name; std::getline(names, name);) paths.push_back(folder_ / ("made/" + name + ".h5"));
    return paths;
  }
  /// The commands that open an archive, by name; each gets the path.
  std::map<std::string, std::function<void(const std::string&)>> commands() const {
    const std::string page = folder_ / "page.html";
    return {
        {"show", [](const std::string& path) { run_command(commands::show_command, {path}); }},
        {"show --json",
         [](const std::string& path) {
           run_command(commands::show_command, {path, "--json"});
         }},
        {"report",
         [page](const std::string& path) {
           run_command(commands::report_command, {path, "-o", page, "--overwrite"});
           std::printf("%s", read_whole(page).c_str());
         }},
        {"watch",
         [](const std::string& path) {
           launch::WatchedRuns runs({path}, 0, 0);
           runs.refresh(0);
           const launch::ScreenSettings settings{.size = {}, .dots = launch::Dots::ascii, .now = 1.7e9, .price = ""};
           for (const auto& line : launch::frame_of(runs.runs(), runs.missing(), {}, settings)) std::printf("%s\n", line.c_str());
         }},
        {"verdict",
         [](const std::string& path) {
           run_command(commands::verdict_command, {path, path});
         }},
        {"verdict --json",
         [](const std::string& path) {
           run_command(commands::verdict_command, {path, path, "--json"});
         }},
        {"compare --add",
         [](const std::string& path) {
           run_command(commands::compare_command, {"--add", path});
         }},
        {"--config",
         [](const std::string& path) {
           const RunConfig config = make_config(parse_run({"--config", path}), plugin_host());
           std::printf("%s", config.to_json().c_str());
           EXPECT_TRUE(config.archive.empty() && !config.overwrite);
         }},
        {"--resume",
         [](const std::string& path) {
           read_past(path, 1000);
           check_same_run(path, R"({"model": ""})", "{}", [](const std::string&) { return false; });
         }},
        {"--archive", [](const std::string& path) { check_archive_path(path, false); }},
    };
  }
  const TemporaryFolder folder_;
};

TEST_F(HostileArchives, NoneIsFollowedOutOfItsFile) {
  CONSIST_NEEDS_PYTHON(python);
  const std::vector<std::string> paths = make(python);
  ASSERT_GE(paths.size(), 26U);
  const auto before = snapshot(folder_ / "made");
  for (const auto& [name, command] : commands()) {
    const std::string fine = said_by([&] { command(folder_ / "good.h5"); });
    EXPECT_THAT(fine, Not(HasSubstr("is refused"))) << name;
  }
  for (const std::string& path : paths) {
    const std::string file = fs::path(path).stem().string();
    for (const auto& [name, command] : commands()) {
      const std::string said = said_by([&] { command(path); });
      EXPECT_THAT(said, Not(HasSubstr(secret))) << name << ", " << file;
      if (name != "report") {
        EXPECT_THAT(said, Not(HasSubstr("\x1b"))) << name << ", " << file;
      }
      for (const char* kind : {"external-", "soft-", "user-", "virtual-", "filter-", "group", "rows-", "events-", "deflated-"}) {
        if (!file.starts_with(kind) || name == "--archive") continue;
        EXPECT_THAT(said, AllOf(HasSubstr("is refused"), HasSubstr("An archive holds all its data itself")))
            << name << ", " << file;
      }
    }
  }
  EXPECT_EQ(snapshot(folder_ / "made"), before) << "a command has changed a file";
}

TEST_F(HostileArchives, LinesOfAnArchiveCannotBeFaked) {
  auto run = test::write_run(folder_ / "run.h5", {.done = 100, .device = R"(GPU\nBEGIN FAKED)"});
  test::finish_run(*run);
  run.reset();
  for (const auto& [name, command] : commands()) {
    if (name == "report" || name == "--config") continue;
    EXPECT_THAT(said_by([&] { command(folder_ / "run.h5"); }), Not(HasSubstr("\nBEGIN FAKED"))) << name;
  }
}

/// A run's archive whose configuration says more than a run does.
class HostileConfiguration : public ::testing::Test {
 protected:
  void write(const std::string& more) const {
    Archive archive(folder_ / "run.h5", true);
    archive.text("/config",
                 R"({"model": "llama-tiny", "dataset": "synthetic", "sequence": 8, "batch": 1, "steps": 1, "device": "cpu",
                              "ranks": 1, "strategy": "ddp")" +
                     more + "}");
    archive.define_steps({{"step", "1", ""}, {"loss", "", ""}});
    archive.finish("finished", "");
  }
  const TemporaryFolder folder_;
};

// Every option of a run and of every plugin that is there is tried, so that a new one is covered by its role.
TEST_F(HostileConfiguration, GivesNoOptionThatNamesCodeOrAPlace) {
  std::string of_run, of_plugins;
  std::vector<std::string> names;
  const std::string evil = folder_ / "evil";
  for (const RunOption& option : run_option_table()) {
    if (option.spec.role == OptionRole::setting) continue;
    names.emplace_back(option.spec.name);
    std::string key = option.spec.name;
    std::replace(key.begin(), key.end(), '-', '_');
    const bool flag = option.spec.kind == OptionKind::flag;
    of_run += ", \"" + key + "\": " + (flag ? "true" : option.spec.kind == OptionKind::integer ? "3" : "\"" + evil + "\"");
  }
  for (const PluginFile& file : plugin_host().files()) {
    if (!file.problem.empty()) continue;
    std::string options;
    for (const OptionSpec& spec : plugin_host().option_table(file.kind, file.name)) {
      const std::string help = spec.help;
      EXPECT_TRUE(help.find(".so") == std::string::npos || spec.role == OptionRole::code) << file.name << "." << spec.name;
      EXPECT_TRUE(file.kind != "observer" || spec.kind != OptionKind::text || spec.role == OptionRole::results)
          << file.name << "." << spec.name;
      if (spec.role == OptionRole::setting) continue;
      names.push_back(file.name + "." + spec.name);
      options += (options.empty() ? "\"" : ", \"") + std::string(spec.name) + "\": \"" + evil + "\"";
    }
    if (!options.empty()) of_plugins += (of_plugins.empty() ? "\"" : ", \"") + file.name + "\": {" + options + "}";
  }
  ASSERT_THAT(names, ::testing::IsSupersetOf({"plugin", "archive", "checkpoint", "export", "trace", "observe", "csv.file",
                                              "tensorboard.folder", "socket.library"}));
  write(of_run + ", \"plugin_options\": {" + of_plugins + "}, \"chosen_options\": {" + of_plugins + "}");
  ParsedRun parsed = parse_run({"--config", folder_ / "run.h5"});
  EXPECT_THAT(plugin_paths(parsed), ::testing::IsEmpty());
  const RunConfig config = make_config(parsed, plugin_host());
  EXPECT_THAT(config.to_json(), Not(HasSubstr(evil)));
  EXPECT_TRUE(config.archive.empty() && config.checkpoint.empty() && !config.overwrite && !config.resume);
  std::string notes;
  for (const std::string& note : config.notes) notes += note + "\n";
  for (const std::string& name : names) EXPECT_THAT(notes, HasSubstr("--" + name)) << "the user is told";
  EXPECT_THAT(notes, HasSubstr("give it on the command line"));
  const RunConfig given = make_config(parse_run({"--config", folder_ / "run.h5", "--socket.library", "mine.so"}), plugin_host());
  EXPECT_EQ(given.plugin_options.at("socket").at("library"), "mine.so");
}

// The plugin would leave a trace when it is loaded; that it is never opened shows in what the command says of it.
TEST_F(HostileConfiguration, RunsNothingInAnyCommandThatTakesIt) {
  write(R"(, "plugin": ["./weights-cache.so"], "archive": ")" + (folder_ / "kept.txt") + R"(", "overwrite": true)");
  write_whole(folder_ / "weights-cache.so", "no library at all");
  write_whole(folder_ / "kept.txt", "kept");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"train", "--steps", "1"},
        {"train", "--print-config"},
        {"explain", "--summary"},
        {"predict", "--machine", "h100"},
        {"evaluate", "--evaluate-sequences", "1"},
        {"advise", "--machine", "h100"},
        {"tune", "--machine", "h100", "--measure", "0", "--global-batch", "1", "--search-seconds", "1"},
        {"compare", "--predict", "--machine", "h100"}}) {
    std::string command = "cd " + folder_.path().string() + " && " CONSIST_BINARY_DIR "/bin/consist";
    for (const std::string& word : words) command += " " + word;
    const auto result = test::run_child({"sh", "-c", command + " --config run.h5"});
    if (words.front() != "evaluate")  // which has no weights to evaluate, and says that first
      EXPECT_THAT(result.output, AllOf(HasSubstr("not taken over is what names code"), HasSubstr("--plugin"))) << command;
    EXPECT_THAT(result.output, AllOf(Not(HasSubstr("cannot be loaded")), Not(HasSubstr("weights-cache.so cannot"))))
        << command;
    EXPECT_LT(result.status, 3) << command << "\n" << result.output;
    EXPECT_EQ(read_whole(folder_ / "kept.txt"), "kept");
  }
}

}  // namespace
}  // namespace consist
