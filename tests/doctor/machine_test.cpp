// Questions to a real machine: programs, names and ports, each for a limited time.
#include "launch/doctor/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "consist/error.h"
#include "consist/socket.h"
#include "core/base/child_output.h"
#include "tests/temporary_folder.h"

namespace consist::doctor {
namespace {

using std::chrono::milliseconds;
using Watch = std::chrono::steady_clock;

TEST(ChildOutput, IsWhatAProgramPrints) {
  const ChildOutput output = child_output({"sh", "-c", "echo out; echo error >&2; cat; exit 3"}, milliseconds(20'000));
  EXPECT_EQ(output.text, "out\n");
  EXPECT_EQ(output.status, 3 << 8);
  EXPECT_TRUE(output.in_time);
  EXPECT_THROW(child_output({"there-is-no-such-program"}, milliseconds(20'000)), SystemError);
}

TEST(ChildOutput, EndsAtItsLimit) {
  for (const char* script : {"echo begun; exec sleep 60", "echo begun; exec sleep 60 >&-"}) {
    const Watch::time_point begin = Watch::now();
    const ChildOutput output = child_output({"sh", "-c", script}, milliseconds(300));
    EXPECT_FALSE(output.in_time) << script;
    EXPECT_EQ(output.text, "begun\n");
    EXPECT_LT(Watch::now() - begin, std::chrono::seconds(30));
  }
}

TEST(ThisMachine, RunsProgramsThatAreThere) {
  const Machine machine = this_machine({});
  EXPECT_FALSE(machine.run({"there-is-no-such-program"}).has_value());
  const std::optional<ChildOutput> output = machine.run({"echo", "well"});
  ASSERT_TRUE(output);
  EXPECT_EQ(output->text, "well\n");
}

TEST(ThisMachine, TellsWhichPortsAreTaken) {
  const Machine machine = this_machine({});
  const network::Socket taken = network::listen_on("", 0);
  const std::uint16_t port = network::local_endpoint(taken).port;
  EXPECT_NE(machine.listen_problem(port), "");
  EXPECT_EQ(machine.loopback_problem(), "");
}

TEST(ThisMachine, TellsWhichNamesResolve) {
  const Machine machine = this_machine({});
  EXPECT_EQ(machine.resolve_problem("127.0.0.1"), "");
  EXPECT_NE(machine.resolve_problem("no-host.invalid"), "");
}

TEST(ThisMachine, ReadsFilesBelowARoot) {
  const TemporaryFolder folder;
  write_whole(folder / "file", "text\n\n");
  Machine machine = this_machine({});
  machine.root = folder.path();
  EXPECT_EQ(machine.read("file"), "text");
  EXPECT_EQ(machine.read("other"), std::nullopt);
  EXPECT_EQ(machine.read(""), std::nullopt) << "a folder is no text";
  EXPECT_THAT(machine.names_in(""), ::testing::ElementsAre("file"));
  EXPECT_TRUE(machine.names_in("other").empty());
  EXPECT_TRUE(machine.has("file"));
  EXPECT_FALSE(machine.has("other"));
  ASSERT_TRUE(machine.space(folder.path()));
  EXPECT_GT(machine.space(folder.path())->bytes, 0);
  EXPECT_EQ(machine.space(folder / "other").has_value(), false);
}

}  // namespace
}  // namespace consist::doctor
