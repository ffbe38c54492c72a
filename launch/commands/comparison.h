// The course of consist compare: rows are checked, predicted or run by turns, judged, and shown.
#pragma once

#include <optional>

#include "core/plugin/host.h"
#include "launch/compare/request.h"
#include "launch/verdict/referee.h"

namespace consist::commands {

/// Returns the command's exit status. Throws UsageError for what cannot be compared, SystemError where files cannot be written.
int run_comparison(launch::CompareRequest request, std::optional<launch::Referee> referee, PluginHost& host);

}  // namespace consist::commands
