// The best configurations of a search, measured by runs.
#pragma once

#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/plugin/host.h"
#include "launch/compare/row_runner.h"
#include "launch/search/tune/search.h"

namespace consist::launch {

/// `config` for a run that is measured: `steps` steps of made-up tokens with the fields of its dataset, new weights, and nothing
/// that is read or written besides: no checkpoint, export, archive, trace, evaluation or observer. Throws as make_parts().
RunConfig measured_config(RunConfig config, std::int64_t steps, PluginHost& host);

/// True if the measurements prefer `a`: it ran, it ran in a later round, or it was faster, in this order.
bool measured_before(const Candidate& a, const Candidate& b);

/// Runs those of `best`, by successive halving: all for 10 steps, the better half for 30, and so on. Says so on stdout. Throws as
/// RowRunner, and SystemError when it is interrupted.
void measure(std::vector<Candidate*> best, PluginHost& host, RowRunner& runner);

}  // namespace consist::launch
