// Trains as users do, in processes of their own, and reads what the run wrote.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/archive/reader.h"
#include "tests/child_process.h"

namespace consist::test {

/// Appends those of `fallbacks` ("--name=value") whose option is not among `options` yet.
inline void add_fallbacks(std::vector<std::string>& options, const std::vector<std::string>& fallbacks) {
  for (const std::string& fallback : fallbacks) {
    const std::string name = fallback.substr(0, fallback.find('=') + 1);
    const bool given = std::any_of(options.begin(), options.end(), [&](const std::string& o) { return o.starts_with(name); });
    if (!given) options.push_back(fallback);
  }
}

/// `consist train` with fresh weights and `options`; over synthetic tokens, on the CPU, at a learning rate of 1e-3, unless they
/// name another dataset, device or rate; bf16 products are widened on it. Gives the run's archive, which it writes to `archive`, over what is there. Throws
/// std::runtime_error with the options and the output of a run that failed.
inline ArchiveReader train_from_scratch(const std::string& archive, const std::vector<std::string>& options,
                                        const std::string& program = CONSIST_BINARY_DIR "/bin/consist") {
  std::vector<std::string> command{program, "train", "--from-scratch", "--overwrite",
                                   "--archive=" + archive};
  command.insert(command.end(), options.begin(), options.end());
  add_fallbacks(command, {"--dataset=synthetic", "--device=cpu", "--learning-rate=1e-3"});
  if (std::find(command.begin(), command.end(), "--device=cpu") != command.end())
    add_fallbacks(command, {"--cpu.bf16=emulated"});  // auto measures, so that two runs may multiply in two ways
  const ChildResult result = run_child(command);
  if (result.status == 0) return ArchiveReader(archive);
  std::string words;
  for (const std::string& option : options) words += option + " ";
  throw std::runtime_error(words + "\n" + result.output);
}

/// Loss of the last evaluation that a run did.
inline double evaluation_loss(const ArchiveReader& archive) {
  const std::vector<ArchivedEvaluation> evaluations = archive.evaluations();
  if (evaluations.empty()) throw std::runtime_error("the archive has no evaluation");
  return evaluations.back().loss;
}

}  // namespace consist::test
