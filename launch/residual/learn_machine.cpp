#include "launch/residual/learn_machine.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/text.h"
#include "core/base/quantity_text.h"
#include "core/base/split.h"
#include "core/cost/machine_file.h"
#include "launch/residual/learn_runs.h"

namespace consist::launch {
namespace {

std::string text_of(const StepErrors& errors) {
  std::string text;
  for (const StepError& error : errors)
    text += (text.empty() ? "" : ", ") + error.kind + " ±" + percent_text(error.error.value, 1) + " (" +
            std::to_string(error.steps) + ")";
  return text.empty() ? "none is known" : text;
}

std::string learned_text(const LearnedFile& file) {
  std::string text = "learned from " + std::to_string(file.runs.size()) + " runs; the rest is that of '" + file.base + "'\n";
  for (const auto& [key, sums] : file.ops) {
    if (std::abs(sums.ratio() - 1) > 0.02 && sums.measured > 1e-3)
      text += "  " + key.first + " " + key.second + " takes " + fixed_text(sums.ratio(), 3) + " times as long as that has it\n";
  }
  text += "steps by the file before, and by what the other runs teach:\n";
  for (const LearnedRun& run : file.runs) {
    const auto error = [&](double predicted) {
      return milliseconds_text(predicted) + " (" + percent_text(predicted / run.measured - 1, 1) + ")";
    };
    text += "  " + run.archive + ": measured " + milliseconds_text(run.measured) + ", before " + error(run.before) + ", now " +
            error(run.held_out) + "\n";
  }
  if (!file.is_better())
    text += "The other runs do not teach to predict a run better than '" + file.base + "' does: keep that.\n";
  return text + "errors of steps before: " + text_of(file.errors_before) + "\nerrors of steps now: " + text_of(file.errors) +
         "\n";
}

}  // namespace

int learn_machine(const CommandLine& line) {
  const std::string output = line.value("output"), listed = line.text("learn");
  for (const char* option : {"add-links", "models", "samples", "ranks", "transport", "seconds"}) {
    if (line.has(option)) throw UsageError("--learn measures nothing: --" + std::string(option) + " has no place beside it");
  }
  const Output written{"--output", output, line.flag("overwrite")};
  check_output(written);
  PluginHost host(line.texts("plugin"));
  const std::vector<std::string_view> archives = split(listed, ',');
  LearnedFile file = learn_from({archives.begin(), archives.end()}, host);
  file.machine.name = std::filesystem::path(output).stem().string();
  const std::string text = to_json(file.machine, file.power, file.errors);
  machine_from_json(text, output);  // what others will read must be legal
  write_output(written, text);
  std::printf("%s", printable(learned_text(file) + "written: " + output + "; use it as --machine " + output + "\n").c_str());
  return 0;
}

}  // namespace consist::launch
