// A step of all ranks as a timeline for trace viewers (--trace).
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>

#include "consist/device.h"
#include "consist/files.h"
#include "consist/job.h"
#include "consist/program.h"

namespace consist {

/// The instructions of one step of one rank as events of Chrome's trace format (JSON objects, separated by commas), which
/// Perfetto shows: a process is a rank, its threads are the queues. `times` by instruction, as Executable::launch_times() gives
/// them; `began`: when run() was called, by this host's clock.
CONSIST_API std::string trace_events(const Program& program, std::span<const LaunchTime> times, int rank, std::string_view host,
                                     std::chrono::system_clock::time_point began);

/// Writes the events of one rank or several, separated by commas, as a file. Throws as write_output().
CONSIST_API void write_trace_file(const Output& output, const std::string& events);

/// Brings the ranks' `events` together in a file, which rank 0 writes. Called by every rank, once. Ranks of different hosts
/// lie as far apart as their clocks do. Throws as Job::gather and write_output().
CONSIST_API void write_trace(Job& job, const Output& output, const std::string& events);

}  // namespace consist
