// Reports of a made-up machine, and of this one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "consist/error.h"
#include "tests/child_process.h"
#include "tests/consist_program.h"
#include "tests/doctor/stand_in.h"

namespace consist::doctor {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

TEST(DoctorReport, FindsNothingOnAMachineThatIsWell) {
  const StandIn machine;
  const Report report = machine.examined({{"gpus", 8}, {"efa", 4}, {"rdma", 4}, {"processors", 96}});
  EXPECT_TRUE(complaints(report).empty()) << report_text(report, false);
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_EQ(finding_of(report, "expect-gpus").status, Status::ok);
  EXPECT_EQ(report.count(Status::not_applicable), 3) << report_text(report, true);  // no job
  EXPECT_EQ(report_text(report, false), "node07: 0 wrong, 0 warnings, 0 unknown, " + std::to_string(report.count(Status::ok)) +
                                            " ok, 3 do not apply here (--all lists them).\n");
}

TEST(DoctorReport, FindsNothingOnTheHostOfRankZero) {
  StandIn machine;
  set_job(machine, "0");
  EXPECT_TRUE(complaints(machine.examined()).empty()) << report_text(machine.examined(), false);
}

TEST(DoctorReport, AsksNoGpuWhereThereIsNone) {
  StandIn machine;
  machine.take_hardware_out();
  machine.limits("65536", "4096");
  machine.plugin("cuda").found = {"it cannot be loaded: it needs libcudnn.so.9", false};
  machine.has_nvidia_smi = true;  // part of an image
  machine.smi_failure = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.";
  const Report report = machine.examined();
  EXPECT_TRUE(complaints(report).empty()) << report_text(report, false);
  EXPECT_EQ(finding_of(report, "gpu-ecc").status, Status::not_applicable);
  EXPECT_EQ(finding_of(report, "memlock").status, Status::not_applicable);
}

TEST(DoctorReport, SeesAContainerWithoutItsGpus) {
  StandIn machine;
  machine.gpus.clear();
  machine.has_nvidia_smi = false;
  std::filesystem::remove(machine.root.path() / "dev/nvidiactl");
  machine.plugin("cuda").found.reason = "there is no NVIDIA driver (libcuda.so.1): this build needs one";
  const Report report = machine.examined();
  EXPECT_EQ(report.results[0].name, "gpu-driver");
  EXPECT_EQ(report.results[0].finding.status, Status::wrong);
  EXPECT_THAT(report.results[0].finding.remedy, HasSubstr("--gpus all"));
  EXPECT_EQ(finding_of(report, "gpu-ecc").status, Status::unknown);
}

TEST(DoctorReport, TellsAnotherCountThanIsExpected) {
  StandIn machine;
  machine.environment["CUDA_VISIBLE_DEVICES"] = "GPU-00,GPU-01";
  const Report report = machine.examined({{"gpus", 8}, {"efa", 5}});
  EXPECT_EQ(finding_of(report, "expect-gpus").found, "2 instead of 8");
  EXPECT_EQ(finding_of(report, "expect-efa").found, "4 instead of 5");
  EXPECT_EQ(report.exit_status(), 1);
}

TEST(DoctorReport, RefusesExpectationsOfNothing) {
  EXPECT_EQ(read_expectation("efa=4").count, 4);
  for (const char* text : {"gpus", "gpus=", "gpus=x", "gpus=-1", "tpus=8", "=8", ""})
    EXPECT_THROW(read_expectation(text), UsageError) << text;
}

TEST(DoctorReport, BeginsWithWhatIsWrong) {
  StandIn machine;
  machine.synchronized = false;
  machine.loopback = "cannot connect";
  const std::string text = report_text(machine.examined(), false);
  EXPECT_THAT(text,
              ::testing::StartsWith("WRONG     loopback            cannot connect\n                              do: ip link"));
  EXPECT_THAT(text, HasSubstr("\nwarning   clock "));
  EXPECT_THAT(text, HasSubstr("\nnode07: 1 wrong, 1 warning, 0 unknown, "));
}

TEST(DoctorReport, CutsNothingThatOthersSay) {
  StandIn machine;
  machine.gpus[0]["name"] = "H100\x1b[2J";
  EXPECT_EQ(report_text(machine.examined(), true).find('\x1b'), std::string::npos);
}

TEST(DoctorCommand, LooksAtThisMachineInTime) {
  const auto begin = std::chrono::steady_clock::now();
  const test::ChildResult result = test::run_child({test::program, "doctor", "--json", "--archive", CONSIST_BINARY_DIR});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  const Json document = Json::parse(result.output);
  EXPECT_EQ(result.status, document["counts"]["wrong"] == 0 ? 0 : 1) << result.output;
  std::set<std::string> names;
  for (const Json& check : document["checks"]) names.insert(check["check"].get<std::string>());
  EXPECT_EQ(names.size(), document["checks"].size()) << "two checks of one name";
  const test::ChildResult expecting = test::run_child({test::program, "doctor", "--expect", "processors=100000"});
  EXPECT_EQ(expecting.status, 1);
  EXPECT_THAT(expecting.output, HasSubstr("instead of 100000"));
}

}  // namespace
}  // namespace consist::doctor
