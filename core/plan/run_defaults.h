// Defaults of strategies' options that depend on what the strategies are combined with.
#pragma once

#include <string>
#include <vector>

#include "core/config/run_facts.h"
#include "core/plan/parts.h"

namespace consist {

CONSIST_API RunFacts facts_of(const Parts& parts);

/// Makes the strategies again whose defaults are others in such a run.
void make_again_with_defaults(Parts& parts, const RunConfig& config, PluginHost& host);

/// "--zero2.stage 1, its default beside stages of a pipeline (2 without)": for people, one line for each such default.
std::vector<std::string> notes_on_defaults(const Parts& parts, const RunConfig& config, PluginHost& host);

}  // namespace consist
