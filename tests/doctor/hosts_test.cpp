// Reports of made-up hosts, joined: what differs is named, and what is wrong or slow is left out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "launch/doctor/host_table.h"
#include "launch/doctor/joint_report.h"
#include "tests/doctor/stand_in.h"
#include "tests/doctor/stand_in_figures.h"

namespace consist::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Hosts that are well.
std::vector<HostReport> hosts_of(int count) {
  std::vector<HostReport> hosts;
  for (int n = 0; n < count; ++n) {
    hosts.push_back({.host = "node0" + std::to_string(n + 1),
                     .ranks = {n},
                     .facts = {{"driver", "580.159.04"}, {"GPUs", "8"}},
                     .clock_seconds = 0.001 * n,
                     .clock_error_seconds = 0.0005,
                     .report = StandIn().examined()});
  }
  return hosts;
}

TEST(DoctorHosts, AreAllKeptWhereNothingIsWrong) {
  const JointReport joint = join("slurm", hosts_of(4));
  EXPECT_TRUE(complaints(joint.all).empty()) << report_text(joint, false);
  EXPECT_THAT(finding_of(joint.all, "gpu-ecc").found, ::testing::StartsWith("all hosts: "));
  EXPECT_THAT(report_text(joint, false), HasSubstr("\nKeep all 4 hosts.\n"));
  EXPECT_EQ(json_of(joint)["slurm"]["nodelist"], "node01,node02,node03,node04");
}

TEST(DoctorHosts, NamesTheHostsThatDiffer) {
  std::vector<HostReport> hosts = hosts_of(4);
  hosts[2].facts["driver"] = "570.86.15";
  hosts[1].facts["GPUs"] = "7";
  hosts[3].clock_seconds = -3;
  const JointReport joint = join("slurm", hosts);
  EXPECT_EQ(complaints(joint.all), (std::set<std::string>{"hosts-alike", "host-clocks"}));
  EXPECT_EQ(finding_of(joint.all, "hosts-alike").found,
            "GPUs 7 on node02; 8 on the others; driver 570.86.15 on node03; 580.159.04 on the others");
  EXPECT_EQ(finding_of(joint.all, "host-clocks").found, "node04 is 3.0 s behind");
  EXPECT_THAT(finding_of(joint.all, "host-clocks").remedy, HasSubstr("chronyd"));
  EXPECT_TRUE(joint.left_out.empty()) << "a warning leaves no host out";
}

TEST(DoctorHosts, BelievesNoClockThatWasAskedSlowly) {
  std::vector<HostReport> hosts = hosts_of(3);
  hosts[1].clock_seconds = 0.4;
  hosts[1].clock_error_seconds = 0.5;
  EXPECT_EQ(finding_of(join("ssh", hosts).all, "host-clocks").status, Status::ok);
}

TEST(DoctorHosts, LeavesOutWhatIsWrongAndWhatIsSlow) {
  std::vector<HostReport> hosts = hosts_of(3);
  StandIn faulty;
  faulty.gpus[3]["ecc.errors.uncorrected.volatile.total"] = "2";
  hosts[1].report = faulty.examined();
  JointReport joint = join("slurm", hosts);
  EXPECT_EQ(joint.all.exit_status(), 1);
  EXPECT_EQ(joint.all.results.front().finding.found, "node02: GPU 3 has 2 uncorrected errors of its memory");
  launch::ShortFigures figures = figures_of(3);
  slow_down(figures, 17, 1.3);
  add_measured(joint, measured_checks(figures));
  const std::string text = report_text(joint, false);
  EXPECT_THAT(text, HasSubstr("\nLeave out: node02 (gpu-ecc), node03 (devices-alike)\nKeep: node01\n"));
  EXPECT_THAT(text, HasSubstr("\nSlurm: --exclude=node02,node03 (or --nodelist=node01)\n"));
  const nlohmann::ordered_json json = json_of(joint);
  EXPECT_THAT(json["leave_out"].get<std::vector<std::string>>(), ElementsAre("node02", "node03"));
  EXPECT_EQ(json["slurm"]["exclude"], "node02,node03");
  joint.cluster = "kubernetes";
  EXPECT_THAT(report_text(joint, false), HasSubstr("\nKubernetes: kubectl cordon node02 node03, or in nodeAffinity: {\"key\":"));
  EXPECT_EQ(json_of(joint)["kubernetes"]["values"], json["leave_out"]);
  joint.cluster = "ssh";
  EXPECT_THAT(report_text(joint, false), HasSubstr("cluster.toml: hosts = [\"node01\"]\n"));
}

TEST(DoctorHosts, AreRowsOfATable) {
  JointReport joint = join("slurm", hosts_of(3));
  for (int n = 0; n < 3; ++n) {
    std::vector<int>& ranks = joint.hosts[static_cast<std::size_t>(n)].ranks;
    ranks.resize(ranks_of_a_host);
    std::iota(ranks.begin(), ranks.end(), n * ranks_of_a_host);
  }
  EXPECT_THAT(host_table(joint), HasSubstr("host    ranks  wrong  warnings  clock\nnode01  0-7    0      0         0.0 ms\n"));
  joint.all.figures = figures_of(3);
  slow_down(*joint.all.figures, 17, 1.3);
  for (launch::LinkFigure& link : joint.all.figures->links) {
    if (link.one == 12 && link.across) link.rate /= 4;
  }
  const std::string table = host_table(joint);
  EXPECT_THAT(table, HasSubstr("clock   time    network\n"));
  EXPECT_THAT(table, HasSubstr("\nnode02  8-15   0      0         1.0 ms  1.00 x  10.0 GB/s\n"));
  EXPECT_THAT(table, HasSubstr("\nnode03  16-23  0      0         2.0 ms  1.30 x  10.0 GB/s\n"));
}

TEST(DoctorHosts, AreTheSameFromTheirJson) {
  StandIn faulty;
  faulty.gpus[3]["ecc.errors.uncorrected.volatile.total"] = "2";
  HostReport host = hosts_of(1).front();
  host.report = faulty.examined();
  const nlohmann::ordered_json json = json_of(host);
  EXPECT_EQ(json_of(host_from(nlohmann::json::parse(json.dump()))), json);
}

}  // namespace
}  // namespace consist::doctor
