// consist explain: the program of a configuration, without running it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "consist/cost.h"
#include "consist/error.h"
#include "consist/host.h"
#include "consist/text.h"
#include "core/base/quantity_text.h"
#include "core/compile/pass_manager.h"
#include "core/config/option_value.h"
#include "core/cost/timeline.h"
#include "core/passes/gather_quantized.h"
#include "core/plan/found_model.h"
#include "core/plan/links.h"
#include "core/plan/machine_choice.h"
#include "core/plan/plan.h"
#include "core/plan/step_estimate.h"
#include "core/program/printer.h"
#include "core/record/metrics.h"
#include "core/record/step_trace.h"
#include "launch/cli/json_output.h"
#include "launch/cli/run_options.h"
#include "launch/commands/commands.h"
#include "launch/predict/simulated_trace.h"

namespace consist::commands {
namespace {

using Json = nlohmann::ordered_json;

constexpr RunOption explain_options[] = {
    a_switch("summary", "FLOPs, bytes per collective and axis, memory by role and at the peak; of all pipeline stages"),
    valued("print-after", OptionKind::text, "", "PASS",
           "the program after this pass, instead of the final one; list names the passes"),
    a_switch("pass-times", "processor time of each pass and of the verification after it, in seconds, instead of the program"),
    valued("rank", OptionKind::integer, "", "R",
           "whose program; left out: 0, for --summary of a pipeline the rank that needs the most memory", "0.."),
};
constexpr TakenOption explain_takes[] = {
    {"machine",
     "the machine to plan for; it need not be present: h200, h100, a100, l40s, cpu or a file, then figures to replace "
     "(docs/machines.md): h100,products=0.45,network=12.5e9,ranks-per-node=8; left out: that of --device, else h200. With "
     "--summary also "
     "an estimate of the step's time on it, and whether the plan fits its memory"},
    {"trace", "writes that estimate as a timeline of all stages for Perfetto"},
    {"json", "the summary of every stage as JSON (docs/json.md)"},
};

std::string layers_text(const Program& program) {
  int first = -1, last = -1;
  for (const Instruction& i : program.instructions) {
    if (i.tag.layer < 0) continue;
    first = first < 0 ? i.tag.layer : std::min<int>(first, i.tag.layer);
    last = std::max<int>(last, i.tag.layer);
  }
  return std::to_string(first) + "-" + std::to_string(last);
}

/// The schedule in equal units, and what the stages' uneven work makes of it.
std::string pipeline_text(std::span<const PlannedRank> ranks, const Simulation& estimated) {
  const std::vector<const Program*> stages = programs_of(ranks);
  const Timeline equal = timeline_of(stages, simulate(ranks, equal_durations));
  return "Pipeline (a forward part takes 1, a backward part 2):\n" + timeline_text(equal) + "idle " +
         percent_text(equal.bubble_fraction(), 1) + " if all stages are equal, " +
         percent_text(timeline_of(stages, estimated).bubble_fraction(), 1) + " by the costs of ops and messages\n\n";
}

/// For --print-after and --pass-times.
class PassPrinter final : public PassObserver {
 public:
  explicit PassPrinter(std::string print_after) : print_after_(std::move(print_after)) {}

  void after(const PassReport& report, const Program& program) override {
    reports_.push_back(report);
    if (report.name == print_after_) text_ += "After " + report.name + ":\n" + to_text(program) + "\n";
  }

  /// The program after every pass of that name, or the names. Throws UsageError where there is no such pass.
  std::string text() const {
    std::string names;
    for (const PassReport& report : reports_) names += report.name + "\n";
    if (print_after_ == "list") return names;
    if (text_.empty()) {
      throw UsageError("--print-after " + print_after_ +
                       ": this configuration has no pass of that name. Its passes, in order:\n" +
                       names.substr(0, names.size() - 1));
    }
    return text_;
  }

  /// A line for each pass.
  std::string times() const {
    std::string text = "PASS                              SECONDS   VERIFIED  INSTRUCTIONS\n";
    PassReport total{.name = "all"};
    const auto line = [&](const PassReport& report) {
      char row[200];
      std::snprintf(row, sizeof row, "%-30s %10.4f %10s %13zu\n", report.name.c_str(), report.seconds,
                    report.changed ? fixed_text(report.verify_seconds, 4).c_str() : "unchanged", report.instructions);
      text += row;
    };
    for (const PassReport& report : reports_) {
      line(report);
      total.seconds += report.seconds;
      total.verify_seconds += report.verify_seconds;
      total.instructions = report.instructions;
    }
    line(total);
    return text;
  }

 private:
  std::string print_after_, text_;
  std::vector<PassReport> reports_;
};

std::string stages_text(std::span<const PlannedRank> stages) {
  std::string text = "RANK  LAYERS    PARAMETERS    FLOP/step   INSTRUCTIONS      MEMORY\n";
  for (const PlannedRank& stage : stages) {
    char line[160];
    std::snprintf(line, sizeof line, "%4d  %-8s %11s %12s %14lld %11s\n", stage.rank, layers_text(stage.step->program()).c_str(),
                  si_text(static_cast<double>(stage.summary.rank_parameters)).c_str(), si_text(stage.summary.flops).c_str(),
                  static_cast<long long>(stage.summary.instructions), bytes_text(stage.summary.planned_bytes).c_str());
    text += line;
  }
  return text;
}

/// The plan for its device, which is opened; without --machine for the machine that the device is of.
Plan for_device(const Plan& plan) {
  Target target{make_device(plan.config(), plan.host()).device, nullptr};
  target.device->open(0, 1);
  if (plan.config().machine.empty()) {
    const MachineChoice choice = machine_for(target.device->info());
    if (!choice.note.empty()) std::fprintf(stderr, "%s\n", printable(choice.note).c_str());
    target.machine = std::make_shared<Machine>(choice.machine);
  }
  return plan.for_target(std::move(target));
}

/// A configuration that is explained, and what is asked of it.
struct Explained {
  const Plan& plan;
  const std::vector<PlannedRank>& stages;
  std::size_t chosen;  ///< the stage that is shown
  bool summary, with_machine, with_device;
};

std::size_t chosen_of(const std::vector<PlannedRank>& stages, std::int64_t rank, bool one_rank, bool summary) {
  if (!summary && !one_rank) return 0;
  std::size_t chosen = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const bool better =
        one_rank ? stages[s].rank == rank : stages[s].summary.planned_bytes > stages[chosen].summary.planned_bytes;
    if (better) chosen = s;
  }
  return chosen;
}

const PlannedRank& largest_of(const std::vector<PlannedRank>& stages) {
  return *std::max_element(stages.begin(), stages.end(), [](const PlannedRank& a, const PlannedRank& b) {
    return a.summary.planned_bytes < b.summary.planned_bytes;
  });
}

/// Its step's time on its machine, with what it may be off.
StepTime time_on_machine(const Explained& e, const Simulation& estimated) {
  const std::vector<const Program*> programs = programs_of(e.stages);
  StepTime time = step_time(programs, estimated);
  time.error = error_bar(step_errors_for(e.plan.config().machine, *e.plan.target().machine), programs);
  return time;
}

void print_estimate(const Explained& e, const Simulation& estimated) {
  const RunConfig& settled = e.plan.config();
  const Machine& machine = *e.plan.target().machine;
  const auto tokens = static_cast<double>(settled.global_batch * settled.sequence);
  const PlannedRank& largest = largest_of(e.stages);
  std::printf("\n%s", fit_text(largest.summary.planned_bytes, largest.rank, machine).c_str());
  std::printf("%s", estimate_text(programs_of(e.stages), time_on_machine(e, estimated), machine, settled.ranks, tokens,
                                  trained_flops_per_token(*e.plan.parts().architecture, settled.sequence, settled.freeze))
                        .c_str());
  const std::vector<AxisLinks> links = links_of(e.plan);
  if (!links.empty()) std::printf("links %s\n", printable(text_of(links)).c_str());
  std::fputs(printable(unknown_text(links)).c_str(), stdout);
}

void print_text(const Explained& e, const std::optional<Simulation>& estimated) {
  const PlannedRank& shown = e.stages[e.chosen];
  if (e.stages.size() > 1) std::fputs(pipeline_text(e.stages, *estimated).c_str(), stdout);
  if (e.summary && e.stages.size() > 1) std::printf("%s\nRank %d:\n", stages_text(e.stages).c_str(), shown.rank);
  std::fputs(e.summary ? summary_text(shown.summary).c_str() : printable(to_text(shown.step->program())).c_str(), stdout);
  if (e.summary && !e.with_device)
    std::printf("The scratch memory of kernels is estimated; --device NAME asks that device for it.\n");
  if (e.summary && e.with_machine) print_estimate(e, *estimated);
}

/// Prints the summary of every stage as numbers, and the estimate where there is a machine.
void print_json(const Explained& e, const std::optional<Simulation>& estimated) {
  const RunConfig& settled = e.plan.config();
  Json document{{"version", 1},
                {"model", model_text(settled)},
                {"strategy", text_of(settled.strategies)},
                {"precision", settled.precision},
                {"ranks", settled.ranks},
                {"batch", settled.batch},
                {"accumulation", settled.accumulation},
                {"sequence", settled.sequence},
                {"machine", e.with_machine ? Json(settled.machine) : Json(nullptr)},
                {"parameters", e.stages.front().summary.parameters},
                {"step", nullptr},
                {"stages", Json::array()}};
  if (e.with_machine) {
    const StepTime time = time_on_machine(e, *estimated);
    const std::int64_t capacity = static_cast<std::int64_t>(e.plan.target().machine->device.memory_bytes.value);
    document["step"] = {{"ms", time.seconds * 1e3},
                        {"seconds", json_of(time)},
                        {"capacity_bytes", capacity > 0 ? Json(capacity) : Json(nullptr)},
                        {"planned_bytes", largest_of(e.stages).summary.planned_bytes}};
  }
  for (const PlannedRank& stage : e.stages) {
    Json row{{"rank", stage.rank}, {"layers", layers_text(stage.step->program())}};
    row.update(Json::parse(summary_json(stage.summary)));
    document["stages"].push_back(std::move(row));
  }
  launch::print_document(document);
}

int explain_config(const ParsedRun& parsed, PluginHost& host, RunConfig config) {
  const bool summary = parsed.flag("summary");
  const bool with_machine = !config.machine.empty();
  // Files have "auto" from runs that named no device: only the command line asks for it.
  const bool with_device = parsed.has("device") && (config.device != "auto" || parsed.given.at("device").said.starts_with("--"));
  const Plan planned = plan_run(std::move(config), host);
  for (const std::string& note : planned.config().notes) std::fprintf(stderr, "%s\n", printable(note).c_str());
  const bool one_rank = parsed.has("rank");
  const std::int64_t rank = one_rank ? parsed.integer("rank") : 0;
  if (rank >= planned.config().ranks) {
    throw UsageError("--rank is " + std::to_string(rank) + "; the job has the ranks 0 to " +
                     std::to_string(planned.config().ranks - 1));
  }
  const std::string print_after = parsed.text("print-after");
  const Plan plan = with_device ? for_device(planned) : planned;
  if (const bool times = parsed.flag("pass-times"); times || !print_after.empty()) {
    PassPrinter printer(print_after);
    plan.step(static_cast<int>(rank), &printer);
    if (!print_after.empty()) std::fputs(printable(printer.text()).c_str(), stdout);
    if (times) std::fputs(printable(printer.times()).c_str(), stdout);
    return 0;
  }

  const std::vector<PlannedRank> stages = plan.ranks(static_cast<int>(rank), usable_cores());
  const Explained explained{plan, stages, chosen_of(stages, rank, one_rank, summary), summary, with_machine, with_device};
  if (stages[explained.chosen].summary.gathers_nothing_quantized) std::fprintf(stderr, "%s\n", no_quantized_gathers);
  const Output trace{"--trace", plan.config().trace, plan.config().overwrite};
  const bool json = parsed.flag("json");
  std::optional<Simulation> estimated;
  if (((summary || json) && with_machine) || stages.size() > 1 || !trace.path.empty()) estimated = simulate(stages);
  if (!trace.path.empty()) write_trace_file(trace, launch::simulated_events(programs_of(stages), *estimated));
  if (json) {
    print_json(explained, estimated);
  } else {
    print_text(explained, estimated);
  }
  return 0;
}

}  // namespace

constinit const Command explain_command{
    .name = "explain",
    .summary = "print the program of a configuration: collectives, FLOPs, memory; nothing is run",
    .usage = "--model NAME [OPTIONS of train]",
    .about =
        "Prints the program that a rank of this configuration executes in one step: every instruction, its tensors and\n"
        "placements, its queue, its waits and the pass that inserted it; for a pipeline also the schedule of its stages.\n"
        "Nothing is run, and no device is asked unless --device names one: scratch memory is then that of its\n"
        "kernels, else it is estimated.\n",
    .own = explain_options,
    .notes = "All options of train are taken; those of parts, batch, sequence and accumulation change the program.\n",
    .example = "consist explain --model llama-3-8b --strategy ddp --ranks 8 --precision bf16 --summary\n",
    .takes = Takes::all,
    .taken = explain_takes,
    .run = [](const CommandLine& line) { return planning_command(line, explain_config); }};

}  // namespace consist::commands
