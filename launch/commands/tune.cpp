// consist tune: searches for the fastest configuration of a machine.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "consist/error.h"
#include "consist/text.h"
#include "core/config/option_value.h"
#include "core/plan/machine_choice.h"
#include "core/plan/plan.h"
#include "launch/commands/commands.h"
#include "launch/compare_runs.h"
#include "launch/exit_status.h"
#include "launch/run_options.h"
#include "launch/tune/search.h"

namespace consist::commands {
namespace {

constexpr RunOption measure_option{.spec = {"measure", OptionKind::integer, "3", "configurations that are run", "0.."},
                                   .value = "N"};
constexpr RunOption limit_option{.spec = {"search-seconds", OptionKind::integer, "300", "of searching", "1.."}, .value = "S"};
constexpr RunOption rows_option{.spec = {"rows", OptionKind::integer, "10", "of the table", "1.."}, .value = "N"};
constexpr RunOption own_options[] = {
    {.spec = {"help", OptionKind::flag, "false", "this text"}}, measure_option, limit_option, rows_option};

constexpr const char* help =
    "usage: consist tune --model NAME --ranks N --global-batch B [OPTIONS of train] [--machine M]   (defaults in\n"
    "brackets)\n\n"
    "Searches for the fastest way to train: strategies and how the ranks are divided between them, micro-batch and\n"
    "accumulation, schedules of pipelines, recomputation if the plan would not fit otherwise. Each configuration is\n"
    "compiled and simulated with the machine's figures; the best N are then run. Options that are given are fixed.\n\n"
    "  --measure N [3]          runs of the best N on this machine: all for 10 steps, the better half for 30, and so on;\n"
    "                           give 0 if there is no device here, or if --machine is another machine\n"
    "  --search-seconds S [300] time limit of the search\n"
    "  --rows N [10]            rows of the table\n"
    "  --machine M              machine to search for: h200 (the default), h100, a100, l40s, cpu or a file of\n"
    "                           consist calibrate\n\n"
    "Prints the table, the Pareto front of speed and memory, why the winner is faster, and the command to train with it.\n"
    "All options of train are taken: consist train --help\n\n"
    "example: consist tune --model llama-3-8b --ranks 8 --global-batch 64 --sequence 4096 --precision bf16 --measure 0\n";

std::int64_t number(const ParsedRun& parsed, const RunOption& option) {
  const std::string name = option.spec.name;
  if (!parsed.has(name)) return std::stoll(option.spec.fallback);
  return std::stoll(legal_value(option.spec, parsed.text(name), parsed.given.at(name).said));
}

/// The command line without tune's own options.
std::vector<std::string> words_of_train(const Arguments& arguments) {
  std::vector<std::string> words;
  for (std::size_t n = 0; n < arguments.size(); ++n) {
    const std::string name = arguments[n].substr(0, arguments[n].find('='));
    const bool own = std::any_of(std::begin(own_options), std::end(own_options),
                                 [&](const RunOption& o) { return name == "--" + std::string(o.spec.name); });
    if (!own) {
      words.push_back(arguments[n]);
      continue;
    }
    if (arguments[n].find('=') == std::string::npos) ++n;
  }
  return words;
}

void add_words(const launch::Choices& choices, std::vector<std::string>& words) {
  for (const launch::Choice& choice : choices) {
    words.push_back("--" + choice.option);
    words.push_back(choice.value);
  }
}

class Measurements {
 public:
  explicit Measurements(std::vector<std::string> words) : words_(std::move(words)) {
    char folder[] = "/tmp/consist-tune-XXXXXX";
    if (mkdtemp(folder) == nullptr) throw SystemError("cannot make a folder in /tmp for the runs' archives");
    folder_ = folder;
  }
  ~Measurements() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Measurements(const Measurements&) = delete;
  Measurements& operator=(const Measurements&) = delete;

  void measure(launch::Candidate& candidate, int steps) {
    std::vector<std::string> words = words_;
    add_words(candidate.choices, words);
    for (const std::string& word :
         {std::string("--steps"), std::to_string(steps), std::string("--dataset"), std::string("synthetic")})
      words.push_back(word);
    std::printf("running %s, %d steps\n", printable(launch::text_of(candidate.choices)).c_str(), steps);
    std::fflush(stdout);
    const launch::RunOutcome outcome = launch::run_in_process(words, folder_ + "/run.h5", folder_ + "/run.log");
    if (outcome.status == "interrupted") throw SystemError("interrupted");
    if (outcome.status == "finished") {
      candidate.measured = outcome.step_seconds;
    } else {
      candidate.measured = 0;
      candidate.problem = outcome.reason;
      std::printf("  %s: %s\n", outcome.status.c_str(), printable(outcome.reason).c_str());
    }
  }

 private:
  std::vector<std::string> words_;
  std::string folder_;
};

/// Successive halving: all of them for a few steps, the better half for more of them.
void run_the_best(std::vector<launch::Candidate*> best, const std::vector<std::string>& words) {
  Measurements measurements(words);
  for (int steps = 10; !best.empty(); steps *= 3) {
    for (launch::Candidate* candidate : best) measurements.measure(*candidate, steps);
    if (best.size() == 1) break;
    std::stable_sort(best.begin(), best.end(), [](const launch::Candidate* a, const launch::Candidate* b) {
      return (a->measured > 0 ? a->measured : 1e30) < (b->measured > 0 ? b->measured : 1e30);
    });
    best.resize(best.size() / 2);
  }
}

}  // namespace

int tune(const Arguments& arguments) {
  const ParsedRun parsed = parse_run(arguments, own_options);
  if (parsed.flag("help")) {
    std::fputs(help, stdout);
    return 0;
  }
  PluginHost host(plugin_paths(parsed));
  say_plugin_warnings(host);
  launch::SearchRequest request{.config = make_config(parsed, host)};
  if (parsed.flag("print-config")) {
    print_config(request.config, host, plugin_paths(parsed));
    return 0;
  }
  if (request.config.global_batch == 0)
    throw UsageError("--global-batch is missing: the sequences of a step, which all configurations have in common");
  request.settled = {parsed.has("strategy"), parsed.has("batch") || parsed.has("accumulation"), parsed.has("recompute")};
  request.machine = request.config.machine.empty() ? reference_machine()
                                                   : std::make_shared<const Machine>(parse_machine(request.config.machine));
  request.most_seconds = static_cast<double>(number(parsed, limit_option));
  const bool terminal = isatty(STDERR_FILENO) != 0;
  if (terminal) {
    request.progress = [](const std::string& text) {
      std::fprintf(stderr, "\r\033[K%.110s", printable(text).c_str());
      std::fflush(stderr);
    };
  }
  launch::SearchResult result = launch::search(request, host);
  if (terminal) std::fputs("\r\033[K", stderr);
  std::printf("%zu configurations fit %s, %d are too large, %d do not go together%s.\n", result.candidates.size(),
              printable(request.machine->name).c_str(), result.too_large, result.refused,
              result.ended_early ? "; the search ended by --search-seconds" : "");
  if (result.candidates.empty()) {
    std::printf("None fits: more ranks, or a smaller --sequence, would.\n");
    return exit_failed;
  }

  const std::vector<std::string> words = words_of_train(arguments);
  const auto measured = static_cast<std::size_t>(number(parsed, measure_option));
  std::vector<launch::Candidate*> best;
  for (std::size_t n = 0; n < std::min(measured, result.candidates.size()); ++n) best.push_back(&result.candidates[n]);
  if (!best.empty()) run_the_best(best, words);

  std::fputs(printable(launch::table_of(result, static_cast<std::size_t>(number(parsed, rows_option)))).c_str(), stdout);
  const auto fastest = std::min_element(result.candidates.begin(), result.candidates.end(), [](const auto& a, const auto& b) {
    return (a.measured > 0 ? a.measured : 1e30) < (b.measured > 0 ? b.measured : 1e30);
  });
  const launch::Candidate& winner = fastest->measured > 0 ? *fastest : result.candidates.front();
  const auto strategy_of = [](const launch::Candidate& candidate) {
    return candidate.choices.empty() ? std::string() : candidate.choices.front().value;
  };
  const auto other = std::find_if(result.candidates.begin(), result.candidates.end(), [&](const launch::Candidate& candidate) {
    return strategy_of(candidate) != strategy_of(winner);
  });
  if (other != result.candidates.end())
    std::printf("Beside '%s' the winner has %s.\n", launch::text_of(other->choices).c_str(), launch::why(winner, *other).c_str());
  std::string command = "consist train";
  for (const std::string& word : words) command += " " + word;
  std::printf("Train with it:\n  %s %s\n", printable(command).c_str(), launch::text_of(winner.choices).c_str());
  return 0;
}

}  // namespace consist::commands
