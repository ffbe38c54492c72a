// Values of options that a configuration is changed by.
#pragma once

#include <string>
#include <vector>

#include "core/config/run_config.h"

namespace consist::launch {

/// An option of the run, or of a plugin as "zero2.stage", and its value.
struct Choice {
  std::string option, value;
};
using Choices = std::vector<Choice>;

/// "--strategy tp-sp=2+ddp --batch 4".
std::string text_of(const Choices& choices);

/// Throws UsageError for what the option's table refuses. Options of plugins are checked when the plugin is made.
void apply(const Choices& choices, RunConfig& config);

}  // namespace consist::launch
