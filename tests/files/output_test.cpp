// The rule of outputs: what is there is replaced with `overwrite` alone, and what is no file never.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "consist/error.h"
#include "consist/files.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class Outputs : public ::testing::Test {
 protected:
  Output to(const std::string& name, bool overwrite = false) const { return {"--json", folder_ / name, overwrite}; }
  const TemporaryFolder folder_;
};

TEST_F(Outputs, AFileIsReplacedWithOverwriteAlone) {
  write_output(to("a.json"), "first");
  EXPECT_EQ(read_whole(folder_ / "a.json"), "first");
  for (const auto& refused : {std::function<void()>([&] { check_output(to("a.json")); }),
                              {[&] { write_output(to("a.json"), "x"); }},
                              {[&] { ::close(open_output(to("a.json"))); }}})
    EXPECT_THAT(refused, ThrowsMessage<UsageError>(AllOf(HasSubstr("--json " + (folder_ / "a.json")), HasSubstr("--overwrite"))));
  EXPECT_EQ(read_whole(folder_ / "a.json"), "first");
  write_output(to("a.json", true), "second");
  EXPECT_EQ(read_whole(folder_ / "a.json"), "second");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 1) << "nothing is left beside it";
}

TEST_F(Outputs, AMarkedFileIsReplacedAsWell) {
  Output page = to("page.html");
  page.mark = "<!-- page -->";
  write_output(page, "<!-- page -->1");
  write_output(page, "<!-- page -->2");
  EXPECT_EQ(read_whole(folder_ / "page.html"), "<!-- page -->2");
  write_whole(folder_ / "page.html", "a letter");
  EXPECT_THROW(write_output(page, "<!-- page -->3"), UsageError);
  EXPECT_EQ(read_whole(folder_ / "page.html"), "a letter");
}

TEST_F(Outputs, LinksStayAndWhatTheyLeadToCounts) {
  write_whole(folder_ / "kept.json", "kept");
  fs::create_symlink("kept.json", folder_ / "link");
  fs::create_symlink("none.json", folder_ / "dangling");
  EXPECT_THAT([&] { write_output(to("link"), "x"); }, ThrowsMessage<UsageError>(HasSubstr("(a link to kept.json)")));
  EXPECT_THROW(write_output(to("dangling"), "x"), UsageError);
  EXPECT_FALSE(fs::exists(folder_ / "none.json"));
  EXPECT_EQ(read_whole(folder_ / "kept.json"), "kept");
  write_output(to("link", true), "new");
  write_output(to("dangling", true), "made");
  EXPECT_EQ(fs::read_symlink(folder_ / "link"), "kept.json");
  EXPECT_EQ(read_whole(folder_ / "kept.json"), "new");
  EXPECT_EQ(read_whole(folder_ / "none.json"), "made");
}

TEST_F(Outputs, DevicesAreWrittenToAndStay) {
  fs::create_symlink("/dev/full", folder_ / "full");
  fs::create_symlink("/dev/null", folder_ / "null");
  for (const bool overwrite : {false, true}) {
    EXPECT_TRUE(check_output(to("null", overwrite)));
    write_output(to("null", overwrite), "text");
    EXPECT_THAT([&] { write_output(to("full", overwrite), "text"); }, ThrowsMessage<SystemError>(HasSubstr("No space left")));
  }
  EXPECT_EQ(fs::read_symlink(folder_ / "full"), "/dev/full");
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(Outputs, APipeGetsTheTextAndStays) {
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = read_whole(pipe); });
  write_output(to("pipe", true), "through");
  reader.join();
  EXPECT_EQ(got, "through");
  EXPECT_TRUE(fs::is_fifo(pipe));
}

TEST_F(Outputs, WhatCannotBeWrittenIsRefusedBeforeTheWork) {
  fs::create_directory(folder_ / "folder");
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string path = folder_ / "socket";
  ASSERT_LT(path.size(), sizeof address.sun_path);
  std::strcpy(address.sun_path, path.c_str());
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  for (const bool overwrite : {false, true}) {
    EXPECT_THAT([&] { check_output(to("folder", overwrite)); },
                ThrowsMessage<UsageError>(HasSubstr("is a folder; name a file in it")));
    EXPECT_THAT([&] { check_output(to("socket", overwrite)); }, ThrowsMessage<UsageError>(HasSubstr("is a socket")));
    EXPECT_THAT([&] { check_output(to("none/a.json", overwrite)); }, ThrowsMessage<UsageError>(HasSubstr("there is no folder")));
    EXPECT_THROW(check_output({"--json", "", overwrite}), UsageError);
  }
  ::close(socket);
}

TEST_F(Outputs, AFileThatAppearsMeanwhileIsNotReplaced) {
  AtomicFile file(folder_ / "a.json", false);
  file.write("mine", 4);
  file.finish();
  write_whole(folder_ / "a.json", "somebody else's");
  EXPECT_THAT([&] { file.publish(); }, ThrowsMessage<UsageError>(HasSubstr("has appeared meanwhile")));
  EXPECT_EQ(read_whole(folder_ / "a.json"), "somebody else's");
}

TEST_F(Outputs, AnOpenOneIsNewAndIsAddedTo) {
  write_whole(folder_ / "rows.csv", "old");
  const int fd = open_output(to("rows.csv", true));
  ASSERT_EQ(::write(fd, "new", 3), 3);
  ::close(fd);
  EXPECT_EQ(read_whole(folder_ / "rows.csv"), "new");
}

}  // namespace
}  // namespace consist
