// consist doctor: checks of this machine, for a run that does not start or is slow; measured and judged by one's own job, too.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/text.h"
#include "core/config/dataset_choices.h"
#include "core/plan/found_model.h"
#include "launch/cli/json_output.h"
#include "launch/cli/plugin_options.h"
#include "launch/cli/run_options.h"
#include "launch/cluster/cluster.h"
#include "launch/cluster/options.h"
#include "launch/commands/commands.h"
#include "launch/doctor/joint_report.h"
#include "launch/doctor/on_cluster.h"
#include "launch/doctor/report.h"
#include "launch/doctor/step_cost.h"
#include "launch/verdict/amounts.h"

namespace consist::commands {
namespace {

constexpr RunOption doctor_options[] = {
    repeated(valued("expect", OptionKind::text, "", "THING=COUNT",
                    "wrong if the machine has another number of gpus, efa, rdma (devices with an active port) or processors")),
    valued("archive", OptionKind::text, "", "PATH", "where archives will lie, a file or folder, whose space is looked at [.]"),
    a_switch("measure", "also measure devices and links, on all GPUs or --ranks N processes: half a minute"),
    valued("slower", OptionKind::text, "2%", "P", "with --model: wrong where the step is slower than predicted by more"),
    launch::on_option,
    launch::cluster_option,
    launch::dry_run_option,
    repeated(valued("plugin", OptionKind::text, "", "PATH", "also look for plugins in this file or folder; may be repeated")),
    a_switch("all", "list what is ok and what does not apply, too"),
    a_switch("json", "all findings as JSON (docs/json.md)"),
};
constexpr TakenOption doctor_takes[] = {
    {"model", "measures, and judges what is slow by a step of this job, which has all options of train"},
    {"machine", "with which figures are compared, as predict takes it; else the file of this device"},
    {"ranks", "of the job; as many are measured here as there are GPUs"},
    {"transport", "whose links are measured"},
    {"device", ""},
    {"timeout", ""},
};

/// Options of a run that have a meaning without a job.
constexpr const char* measuring_options[] = {"ranks", "device", "transport", "machine", "timeout"};

bool has_job(const ParsedRun& parsed) {
  return parsed.has("model") || parsed.has("from") || parsed.has("config");
}

bool measures(const ParsedRun& parsed) {
  return parsed.flag("measure") || has_job(parsed);
}

/// Throws UsageError for options without a meaning.
void check_doctor_options(const ParsedRun& parsed) {
  const bool job = has_job(parsed), measured = measures(parsed);
  for (const auto& [name, given] : parsed.given) {
    const std::span<const RunOption> own = parsed.command->own;
    const bool is_own = std::any_of(own.begin(), own.end(), [&](const RunOption& row) { return row.spec.name == name; });
    const bool is_measuring =
        std::find(std::begin(measuring_options), std::end(measuring_options), name) != std::end(measuring_options);
    if (!job && !is_own && !is_measuring)
      throw UsageError(given.said + " is an option of a job, and there is none: give --model, too, or leave it out");
    const bool is_of_hosts = launch::is_on_cluster(parsed) && (name == "ranks" || name == "timeout");
    if (!measured && is_measuring && !is_of_hosts)
      throw UsageError(given.said + " says what is measured: give --measure or --model, too");
    if (launch::is_on_cluster(parsed) && (name == "expect" || name == "archive"))
      throw UsageError(given.said + " is for one machine: leave it out, or leave out --on");
    if (!job && name == "slower") throw UsageError("--slower is for a job's step: give --model, too, or leave it out");
  }
  if (!measured && !parsed.rest.empty())
    throw UsageError("'" + parsed.rest.front() + "' is no option of consist doctor; see consist doctor --help");
}

/// Ranks that are measured here: one for each GPU, unless fewer are asked for; without GPUs as many as are asked for.
int ranks_here(const ParsedRun& parsed, const doctor::Facts& facts) {
  const int asked = parsed.has("ranks") ? static_cast<int>(parsed.integer("ranks")) : 0;
  const doctor::PluginState* const cuda = facts.plugin("device", "cuda");
  const bool on_gpus = cuda != nullptr && cuda->found.loads && cuda->found.reason.empty() &&
                       (!parsed.has("device") || parsed.text("device") == "auto" || parsed.text("device") == "cuda");
  const int gpus = on_gpus ? visible_gpus(facts.gpus, facts.machine.variable("CUDA_VISIBLE_DEVICES")).count : 0;
  if (gpus == 0) return std::max(1, asked);
  return asked == 0 ? gpus : std::min(asked, gpus);
}

/// Options of the devices and transports that are measured, as words; others are those of the job alone.
void add_part_options(const std::map<std::string, std::map<std::string, std::string>>& given, PluginHost& host,
                      std::vector<std::string>& words) {
  for (const auto& [owner, options] : given) {
    if (!host.has("device", owner) && !host.has("transport", owner)) continue;
    for (const auto& [name, value] : options) words.push_back("--" + owner + "." + name + "=" + value);
  }
}

/// The words of the ranks that look and measure.
std::vector<std::string> examining_words(const ParsedRun& parsed, PluginHost& host, const std::optional<RunConfig>& config,
                                         std::vector<std::string> words) {
  std::vector<std::string> notes;
  add_part_options(config ? config->plugin_options : read_plugin_options(parsed.rest, host, notes), host, words);
  for (const std::string& note : notes) std::fprintf(stderr, "%s\n", printable(note).c_str());
  if (measures(parsed)) words.emplace_back("--measure");
  for (const char* option : {"device", "transport", "machine", "timeout"}) {
    const bool is_list = parsed.text(option).find_first_of("+=") != std::string::npos;  // by axis; a measurement has none
    if (parsed.has(option) && !(option == std::string("transport") && is_list))
      words.insert(words.end(), {std::string("--") + option, parsed.text(option)});
  }
  for (const std::string& plugin : parsed.texts("plugin")) words.insert(words.end(), {"--plugin", plugin});
  return words;
}

std::string short_text(const RunConfig& config) {
  return model_text(config) + ", " + text_of(config.strategies) + ", " + std::to_string(config.ranks) +
         (config.ranks == 1 ? " rank, " : " ranks, ") + config.precision;
}

/// The checks of what was measured, judged by the job's step if there is one.
std::vector<doctor::MeasuredCheck> checks_of(const ParsedRun& parsed, PluginHost& host, std::optional<RunConfig> config,
                                             doctor::Examination& examination, doctor::Report& report) {
  if (!examination.figures) return {{.result = doctor::failed_measurement(examination.problem)}};
  report.figures = std::move(examination.figures);
  std::vector<doctor::MeasuredCheck> checks = doctor::measured_checks(*report.figures);
  if (!config) return checks;
  const auto base = std::make_shared<const Machine>(report.figures->base);
  const Plan plan = plan_run(std::move(*config), host, {.device = nullptr, .machine = base});
  report.step = doctor::judge_step(*report.figures, checks, short_text(plan.config()),
                                   launch::percent_of("slower", parsed.value("slower")), doctor::step_seconds(plan));
  return checks;
}

template <typename Kind>
int say(const ParsedRun& parsed, const Kind& report, int status) {
  if (parsed.flag("json")) {
    launch::print_document(json_of(report));
  } else {
    std::fputs(printable(report_text(report, parsed.flag("all"))).c_str(), stdout);
  }
  return status;
}

constexpr std::chrono::seconds longest_measurement{300};

int examine_this_machine(const ParsedRun& parsed, PluginHost& host, std::optional<RunConfig> config) {
  if (config) plan_run(*config, host, {.device = nullptr, .machine = nullptr});  // what cannot be planned is said at once
  std::vector<doctor::Expectation> expectations;
  for (const std::string& text : parsed.texts("expect")) expectations.push_back(doctor::read_expectation(text));
  std::string folder = parsed.has("archive") ? parsed.text("archive") : ".";
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) folder = folder_of(folder);
  const doctor::Facts facts = doctor::read_facts(doctor::this_machine(parsed.texts("plugin")), folder);
  doctor::Report report = doctor::examine(facts, expectations);
  if (measures(parsed)) {
    doctor::Examination examination = doctor::examine_here(
        examining_words(parsed, host, config, {"--ranks", std::to_string(ranks_here(parsed, facts))}), longest_measurement);
    std::vector<doctor::Result> results;
    for (doctor::MeasuredCheck& check : checks_of(parsed, host, std::move(config), examination, report))
      results.push_back(std::move(check.result));
    doctor::add(report, std::move(results));
  }
  return say(parsed, report, report.exit_status());
}

int examine_cluster(const ParsedRun& parsed, PluginHost& host, std::optional<RunConfig> config) {
  const std::unique_ptr<launch::Cluster> cluster = launch::make_cluster(parsed);
  const int ranks = parsed.has("ranks") ? static_cast<int>(parsed.integer("ranks")) : cluster->settings().ranks();
  if (config) {
    config->ranks = ranks;
    plan_run(*config, host, {.device = nullptr, .machine = nullptr});  // what cannot be planned is said before a job is made
  }
  const std::vector<std::string> words = examining_words(parsed, host, config, {"--look"});
  if (parsed.flag("dry-run")) {
    std::fputs(doctor::dry_run_text(*cluster, words, ranks, host).c_str(), stdout);
    return 0;
  }
  doctor::Examination examination = doctor::examine_on(*cluster, words, ranks, host);
  doctor::JointReport joint = doctor::join(parsed.value("on"), std::move(examination.hosts));
  if (measures(parsed)) doctor::add_measured(joint, checks_of(parsed, host, std::move(config), examination, joint.all));
  return say(parsed, joint, joint.all.exit_status());
}

int examine_machines(const CommandLine& line) {
  const ParsedRun parsed = parse_run(line);
  check_doctor_options(parsed);
  launch::percent_of("slower", parsed.value("slower"));
  PluginHost host(parsed.texts("plugin"));
  std::optional<RunConfig> config;
  if (has_job(parsed)) config = make_config(parsed, host);
  return launch::is_on_cluster(parsed) ? examine_cluster(parsed, host, std::move(config))
                                       : examine_this_machine(parsed, host, std::move(config));
}

}  // namespace

constinit const Command doctor_command{
    .name = "doctor",
    .summary = "check this machine: GPUs, libraries, limits, network, clock; and say what to do",
    .usage = "[--expect THING=COUNT]... [--measure] [--model NAME [OPTIONS of train]] [OPTIONS]",
    .about =
        "Looks at what makes runs fail to start or be slow: hidden or faulty GPUs, an old driver, libraries that are missing,\n"
        "limits of the process and its container, names and ports of the job, network devices that are down. Without\n"
        "--measure and --model it uses no GPU and takes less than ten seconds. --measure times devices and the links\n"
        "between them, beside their equals and the machine's file. With a job (--model and options of train) what is slow\n"
        "is put into the prediction of its step, and each finding says what it costs. Status 1: something is wrong.\n",
    .own = doctor_options,
    .notes =
        "It looks at one machine, with the environment and the limits that it is started with: start it as the run is.\n"
        "With --on it looks at all hosts of a cluster by a job, and lists which to keep and which to leave out.\n",
    .example = "consist doctor --model llama-3-8b --strategy zero2 --ranks 8 --precision bf16 --batch 1 --sequence 4096\n",
    .takes = Takes::all,
    .taken = doctor_takes,
    .run = examine_machines};

}  // namespace consist::commands
