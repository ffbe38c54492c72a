// Settings of the process that must be made before anything else.
#pragma once

namespace consist::launch {

/// Opens /dev/null for each of standard input, output and error that is closed: otherwise the next files and sockets that are
/// opened would get their numbers, and what is printed would go into them. The first thing that main() calls, before anything
/// opens a file. Ends the process if /dev/null cannot be opened.
void open_standard_descriptors() noexcept;

/// Raises the number of files that this process may have open to what the system allows it (`ulimit -Hn`): the usual soft limit
/// of 1024 is below what a job of many ranks has connections.
void raise_descriptor_limit() noexcept;

}  // namespace consist::launch
