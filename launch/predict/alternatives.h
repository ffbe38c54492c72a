// The changes of a configuration that advice and remedies try: the one list of them.
#pragma once

#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "launch/predict/choices.h"

namespace consist::launch {

/// The purpose that a change may serve, by what it does; only a simulation says whether it does.
enum class Aim : unsigned char { speed, memory, both };

struct Alternative {
  /// Its subject ("precision", "micro-batch"); changes of one subject exclude each other.
  std::string subject;
  Choices choices;
  Aim aim = Aim::both;
  /// Differences besides speed and memory, for the user: "changes the numerics: ...". Empty: losses stay the same but for the
  /// order of sums.
  std::string caution;
};

/// Alternatives to the configuration of `plan`, which is laid out and settled; of each aim the most promising first. Some are
/// refused when they are planned, since sizes do not divide or parts do not go together.
std::vector<Alternative> alternatives_of(const Plan& plan, PluginHost& host);

/// The configuration with these choices: the batch of a rank follows from that of all ranks where the choices do not state it,
/// and options of parts that are no longer in the configuration are left out. Throws UsageError.
RunConfig changed(const RunConfig& config, const Choices& choices, PluginHost& host);

/// "--strategy ddp", and behind it the parts that it takes out of `config` though options are given for them: "--strategy ddp
/// without --zero2.*".
std::string text_of(const Choices& choices, const RunConfig& config, PluginHost& host);

}  // namespace consist::launch
