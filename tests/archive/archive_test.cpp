// Archives give back what was written into them, and what cannot work is refused by name.
#include "core/archive/archive.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/handshake.h"
#include "core/archive/past.h"
#include "core/archive/reader.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::vector<Column> kColumns = {
    {"step", "1", "optimizer step, from 1"}, {"loss", "1", "mean loss of the step"}, {"step_time", "s", "time of the step"}};

void write_run(const std::string& path, int steps) {
  Archive archive(path, false);
  archive.text("/config", R"({"model":"qwen3-0.6b"})");
  archive.define_steps(kColumns);
  for (int step = 1; step <= steps; ++step) archive.append(std::vector<double>{double(step), 1.0 / step, 0.5 * step});
  archive.finish("finished", "");
}

/// Writes two steps as a run on `host` would, in a process that ends by `signal`, or by _exit() if it is 0.
void leave_by(const std::string& path, int signal, const std::string& host) {
  const pid_t child = ::fork();
  if (child == 0) {
    Archive archive(path, true);
    archive.define_steps(kColumns);
    archive.text("/environment", nlohmann::json{{"host", host}}.dump());
    for (int step = 1; step <= 2; ++step) archive.append(std::vector<double>{double(step), 1, 1});
    if (signal != 0) ::raise(signal);
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST(Archive, RoundTrip) {
  const TemporaryFolder folder;
  const std::string path = folder / "run.h5";
  {
    Archive archive(path, false);
    archive.text("/config", R"({"name":"größe"})");
    archive.text("/result", "{}");
    archive.text("/comm", "{}");
    archive.text("/comm", R"({"bytes":1})");
    archive.event(12.5, "checkpoint", "step 1");
    archive.define_steps(kColumns);
    EXPECT_THAT(ArchiveReader(path).column("loss"), ElementsAre());
    archive.append(std::vector<double>{1, 2.5, 0.1});
    archive.append(std::vector<double>{2, std::nan(""), 0.2});
    archive.event(13.5, "stop", "asked to");

    const ArchiveReader running(path);  // while it is written
    EXPECT_EQ(running.status(), "running");
    EXPECT_THAT(running.column("step"), ElementsAre(1, 2));
    archive.append(std::vector<double>{3, -1e300, 0.3});
    archive.finish("stopped", "Ctrl-C");
  }
  const ArchiveReader reader(path);
  EXPECT_EQ(reader.status(), "stopped");
  EXPECT_EQ(reader.reason(), "Ctrl-C");
  EXPECT_EQ(reader.text("/config"), R"({"name":"größe"})");
  EXPECT_EQ(reader.text("/comm"), R"({"bytes":1})");
  EXPECT_EQ(reader.text("/program"), "");
  EXPECT_EQ(reader.text("/unheard-of"), "");
  EXPECT_THAT(reader.columns(), ElementsAre("loss", "step", "step_time"));
  EXPECT_EQ(reader.unit("step_time"), "s");
  EXPECT_THAT(reader.column("step"), ElementsAre(1, 2, 3));
  EXPECT_THAT(reader.column("loss"), ElementsAre(2.5, testing::IsNan(), -1e300));
  EXPECT_THAT(reader.column("step_time"), ElementsAre(0.1, 0.2, 0.3));
  const std::vector<ArchiveEvent> events = reader.events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].time, 13.5);
  EXPECT_EQ(events[1].kind, "stop");
  EXPECT_EQ(events[1].text, "asked to");
}

TEST(Archive, ManyRowsCrossChunks) {
  const TemporaryFolder folder;
  write_run(folder / "run.h5", 3000);
  const std::vector<double> loss = ArchiveReader(folder / "run.h5").column("loss");
  ASSERT_EQ(loss.size(), 3000U);
  for (int i = 0; i < 3000; ++i) ASSERT_EQ(loss[i], 1.0 / (i + 1));
}

TEST(Archive, TextsOfAnyLengthAreKeptCompressed) {
  const TemporaryFolder folder;
  std::string text = "{\"größe\": [";
  for (int i = 0; i < 200'000; ++i) text += "1234567,";
  text += "0]}";
  {
    Archive archive(folder / "run.h5", false);
    archive.define_steps(kColumns);
    EXPECT_EQ(ArchiveReader(folder / "run.h5").packed_text("/timeline"), "") << "not written yet";
    archive.append(std::vector<double>{1, 2, 3});
    archive.packed_text("/timeline", text);
    archive.packed_text("/programs", text + "2");
    EXPECT_EQ(ArchiveReader(folder / "run.h5").packed_text("/timeline"), text) << "while the run goes on";
    EXPECT_THROW(archive.packed_text("/elsewhere", text), ProgramError);
    archive.text("/result", "{}");
    archive.finish("finished", "");
  }
  const ArchiveReader reader(folder / "run.h5");
  EXPECT_EQ(reader.version(), 2);
  EXPECT_EQ(reader.packed_text("/timeline"), text);
  EXPECT_EQ(reader.packed_text("/programs"), text + "2");
  EXPECT_EQ(reader.text("/result"), "{}");
  EXPECT_LT(std::filesystem::file_size(folder / "run.h5"), text.size() / 2);
}

TEST(Archive, LongTextsAreCutBetweenCharacters) {
  const TemporaryFolder folder;
  {
    Archive archive(folder / "run.h5", false);
    std::string text = "x";
    for (int i = 0; i < 1000; ++i) text += "ü";
    archive.event(0, std::string(100, 'k'), text);
    archive.finish("failed", text);
  }
  const ArchiveReader reader(folder / "run.h5");
  EXPECT_EQ(reader.events().at(0).kind.size(), 32U);
  const std::string reason = reader.reason();
  EXPECT_EQ(reason, reader.events().at(0).text);
  EXPECT_EQ(reason.size(), 1024U);
  EXPECT_EQ(reason.substr(1019), "ü…");
}

TEST(Archive, AnExistingFileIsKept) {
  const TemporaryFolder folder;
  const std::string path = folder / "run.h5";
  write_run(path, 3);
  EXPECT_THAT([&] { Archive(path, false); }, ThrowsMessage<UsageError>(HasSubstr(path)));
  EXPECT_EQ(ArchiveReader(path).column("step").size(), 3U);
  { Archive archive(path, true); }
  EXPECT_EQ(ArchiveReader(path).columns().size(), 0U);
}

TEST(Archive, IsWrittenByOneRunAtATime) {
  const TemporaryFolder folder;
  const std::string path = folder / "run.h5";
  const auto in_use = ThrowsMessage<UsageError>(::testing::AllOf(HasSubstr(path), HasSubstr("being written by another run")));
  {
    Archive archive(path, false);
    archive.define_steps(kColumns);
    for (const bool overwrite : {false, true}) EXPECT_THAT([&] { check_archive_path(path, overwrite); }, in_use);
    EXPECT_THAT([&] { Archive(path, true); }, in_use);
    EXPECT_EQ(ArchiveReader(path).status(), "running");  // who reads is not kept out
    archive.finish("finished", "");
    EXPECT_NO_THROW(check_archive_path(path, true));
  }
  // A writer that is killed keeps nobody out.
  leave_by(path, SIGKILL, network::host_name());
  EXPECT_NO_THROW(Archive(path, true).finish("finished", ""));
}

TEST(Archive, ARunWhoseProcessIsGoneIsCutOff) {
  const TemporaryFolder folder;
  const std::string path = folder / "run.h5";
  for (const int signal : {SIGKILL, 0}) {  // 0: _exit()
    leave_by(path, signal, network::host_name());
    const ArchiveReader archive(path);
    EXPECT_EQ(archive.status(), "cut off");
    EXPECT_THAT(archive.reason(), HasSubstr("ended without closing the archive"));
    EXPECT_THAT([&] { check_archive_path(path, false); },
                ThrowsMessage<UsageError>(HasSubstr("(of a run that was cut off after step 2) exists already")));
  }
  // Another host's locks need not reach this one: its run may go on.
  leave_by(path, SIGKILL, network::host_name() + "-2");
  EXPECT_EQ(ArchiveReader(path).status(), "running");
  EXPECT_EQ(ArchiveReader(path).reason(), "");
}

TEST(Archive, ARunThatEndsWhileItIsLookedAtIsNotCutOff) {
  const TemporaryFolder folder;
  const std::string path = folder / "run.h5";
  Archive archive(path, false);
  archive.define_steps(kColumns);
  archive.text("/environment", nlohmann::json{{"host", network::host_name()}}.dump());
  const ArchiveReader before(path);
  archive.finish("failed", "the disk is gone");
  EXPECT_NE(before.status(), "cut off");
  EXPECT_EQ(ArchiveReader(path).status(), "failed");
  EXPECT_EQ(ArchiveReader(path).reason(), "the disk is gone");
}

TEST(Archive, OnlyArchivesAreReplaced) {
  const TemporaryFolder folder;
  const std::string path = folder / "run.h5", text = folder / "precious.txt";
  write_whole(text, "a life's work");
  std::filesystem::create_symlink(text, path);
  EXPECT_THAT([&] { check_archive_path(path, false); },
              ThrowsMessage<UsageError>(::testing::AllOf(HasSubstr(path + " (a link to " + text + ")"), HasSubstr("exists"))));
  EXPECT_THAT([&] { check_archive_path(path, true); }, ThrowsMessage<UsageError>(HasSubstr("is no HDF5 file")));
  EXPECT_THAT([&] { Archive(path, true); }, ThrowsMessage<UsageError>(HasSubstr("is no HDF5 file")));
  EXPECT_EQ(read_whole(text), "a life's work");

  std::filesystem::remove(text);  // a link to nothing is no free name either
  EXPECT_THAT([&] { check_archive_path(path, false); }, ThrowsMessage<UsageError>(HasSubstr("exists already")));
  write_run(text, 3);
  { Archive archive(path, true); }
  EXPECT_TRUE(std::filesystem::is_symlink(path));
  EXPECT_EQ(ArchiveReader(text).columns().size(), 0U) << "asked for, an archive behind a link is replaced where it lies";
}

TEST(Archive, APathThatCannotBeWritten) {
  EXPECT_THAT([] { Archive("/nowhere/run.h5", false); },
              ThrowsMessage<SystemError>(::testing::AllOf(HasSubstr("/nowhere/run.h5"), HasSubstr("No such file"))));
  EXPECT_THAT([] { Archive("/proc/run.h5", false); }, ThrowsMessage<SystemError>(HasSubstr("/proc/run.h5")));
}

TEST(Archive, MisuseIsNamed) {
  const TemporaryFolder folder;
  Archive archive(folder / "run.h5", false);
  EXPECT_THROW(archive.text("/else", "{}"), ProgramError);
  EXPECT_THROW(archive.define_steps({{"loss", "1", ""}}), ProgramError);
  EXPECT_THROW(archive.append(std::vector<double>{1}), ProgramError);
  archive.define_steps(kColumns);
  EXPECT_THROW(archive.append(std::vector<double>{1}), ProgramError);
  EXPECT_THROW(archive.finish("done", ""), ProgramError);
  archive.finish("finished", "");
  EXPECT_THROW(archive.finish("finished", ""), ProgramError);
}

// A limit on the size of files stands for a full disk. In a child, since HDF5 is left with data that it cannot write.
TEST(Archive, ADiskThatFillsUp) {
  const TemporaryFolder folder;
  const std::string path = folder / "run.h5";
  int report[2];
  ASSERT_EQ(::pipe(report), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{200'000, 200'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::string outcome = "no error";
    try {
      Archive archive(path, false);
      archive.define_steps(kColumns);
      try {
        for (int step = 1; step <= 20'000; ++step) archive.append(std::vector<double>{double(step), 1.0 / step, 0});
      } catch (const SystemError& error) {
        outcome = error.what();
      }
      try {
        archive.append(std::vector<double>{0, 0, 0});
        outcome += " (but a later write was taken)";
      } catch (const SystemError&) {
      }
    } catch (const std::exception& error) {
      outcome = std::string("unexpected: ") + error.what();
    }
    (void)!::write(report[1], outcome.data(), outcome.size());
    std::exit(0);  // HDF5's own end of process must come through, too
  }
  ::close(report[1]);
  std::string outcome(4096, '\0');
  outcome.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::read(report[0], outcome.data(), outcome.size()))));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_THAT(outcome, ::testing::AllOf(HasSubstr(path), HasSubstr("File too large"), ::testing::Not(HasSubstr("but a later"))));
  const std::vector<double> steps = ArchiveReader(path).column("step");
  EXPECT_GT(steps.size(), 2000U);
  for (std::size_t i = 0; i < steps.size(); ++i) ASSERT_EQ(steps[i], double(i + 1));
}

TEST(ArchiveReader, WhatIsNoArchive) {
  const TemporaryFolder folder;
  EXPECT_THAT([&] { ArchiveReader(folder / "none.h5"); }, ThrowsMessage<SystemError>(HasSubstr("none.h5")));
  write_whole(folder / "text.h5", "not HDF5");
  EXPECT_THAT([&] { ArchiveReader(folder / "text.h5"); }, ThrowsMessage<DataError>(HasSubstr("text.h5")));
  write_run(folder / "run.h5", 3);
  EXPECT_THAT([&] { ArchiveReader(folder / "run.h5").column("mfu"); },
              ThrowsMessage<DataError>(HasSubstr("no column mfu; it has: loss, step, step_time")));
}

TEST(ArchiveReader, ACutOffFile) {
  const TemporaryFolder folder;
  write_run(folder / "run.h5", 2000);
  const std::string whole = read_whole(folder / "run.h5");
  for (std::size_t part = 0; part < 40; ++part) {
    write_whole(folder / "cut.h5", whole.substr(0, whole.size() * part / 40));
    EXPECT_THROW(ArchiveReader(folder / "cut.h5"), DataError) << part;
  }
}

TEST(Archive, OfAnEarlierVersionLacksOptionsThatHadTheirDefaults) {
  const TemporaryFolder folder;
  const std::string path = folder / "run.h5", defaults = R"({"model":"","offload":"none"})";
  const auto may_differ = [](const std::string& option) { return option == "trace" || option == "csv.file"; };
  write_run(path, 2);
  EXPECT_NO_THROW(check_same_run(path, R"({"model":"qwen3-0.6b","offload":"none"})", defaults, may_differ));
  EXPECT_NO_THROW(
      check_same_run(path, R"({"model":"qwen3-0.6b","trace":"t","plugin_options":{"csv":{"file":"a"}}})", defaults, may_differ));
  EXPECT_THAT(
      [&] { check_same_run(path, R"({"model":"qwen3-0.6b","plugin_options":{"zero2":{"stage":"1"}}})", defaults, may_differ); },
      ThrowsMessage<UsageError>(HasSubstr("plugin_options: {} in the archive")));
  // Runs of earlier versions went over sockets by default, and their archives say so.
  const std::string over_sockets = (folder.path() / "sockets.h5").string();
  {
    Archive archive(over_sockets, false);
    archive.text("/config", R"({"model":"qwen3-0.6b","transport":"socket"})");
    archive.define_steps({{"step", "1", ""}});
    archive.finish("stopped", "");
  }
  EXPECT_NO_THROW(check_same_run(over_sockets, R"({"model":"qwen3-0.6b","transport":"auto"})", defaults, may_differ));
  EXPECT_THROW(check_same_run(over_sockets, R"({"model":"qwen3-0.6b","transport":"nvlink"})", defaults, may_differ), UsageError);
  EXPECT_THAT([&] { check_same_run(path, R"({"model":"qwen3-0.6b","offload":"all"})", defaults, may_differ); },
              ThrowsMessage<UsageError>(HasSubstr(R"(offload: nothing in the archive, "all" now)")));
  EXPECT_THAT([&] { check_same_run(path, R"({"model":"","offload":"none"})", defaults, may_differ); },
              ThrowsMessage<UsageError>(HasSubstr(R"(model: "qwen3-0.6b" in the archive)")));
}

}  // namespace
}  // namespace consist
