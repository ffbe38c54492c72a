// consist doctor: checks of this machine, for a run that does not start or is slow.
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "consist/files.h"
#include "consist/text.h"
#include "launch/cli/json_output.h"
#include "launch/commands/commands.h"
#include "launch/doctor/report.h"

namespace consist::commands {
namespace {

constexpr RunOption doctor_options[] = {
    repeated(valued("expect", OptionKind::text, "", "THING=COUNT",
                    "wrong if the machine has another number of gpus, efa, rdma (devices with an active port) or processors")),
    valued("archive", OptionKind::text, "", "PATH", "where archives will lie, a file or folder, whose space is looked at [.]"),
    repeated(valued("plugin", OptionKind::text, "", "PATH", "also look for plugins in this file or folder; may be repeated")),
    a_switch("all", "list what is ok and what does not apply, too"),
    a_switch("json", "all findings as JSON (docs/json.md)"),
};

int examine_machine(const CommandLine& line) {
  std::vector<doctor::Expectation> expectations;
  for (const std::string& text : line.texts("expect")) expectations.push_back(doctor::read_expectation(text));
  std::string folder = line.has("archive") ? line.text("archive") : ".";
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) folder = folder_of(folder);
  const doctor::Facts facts = doctor::read_facts(doctor::this_machine(line.texts("plugin")), folder);
  const doctor::Report report = doctor::examine(facts, expectations);
  if (line.flag("json")) {
    launch::print_document(doctor::json_of(report));
  } else {
    std::fputs(printable(doctor::report_text(report, line.flag("all"))).c_str(), stdout);
  }
  return report.exit_status();
}

}  // namespace

constinit const Command doctor_command{
    .name = "doctor",
    .summary = "check this machine: GPUs, libraries, limits, network, clock; and say what to do",
    .usage = "[--expect THING=COUNT]... [--archive PATH] [--plugin PATH]... [--all] [--json]",
    .about =
        "Looks at what makes runs fail to start or be slow: hidden or faulty GPUs, an old driver, libraries that are missing,\n"
        "limits of the process and its container, names and ports of the job, network devices that are down. It measures\n"
        "nothing, uses no GPU and takes less than ten seconds. Status 1: something is wrong; warnings leave it at 0.\n",
    .own = doctor_options,
    .notes = "It looks at one machine, with the environment and the limits that it is started with: start it as the run is.\n",
    .example = "consist doctor --expect gpus=8\n",
    .run = examine_machine};

}  // namespace consist::commands
