// Files of a checkpoint as the ranks that wrote them tell of them.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint_state.h"
#include "core/job/job.h"

namespace consist {

/// Notes the files of these messages in the state: to_text() of each, one a line; an empty one tells of none. Returns their
/// bytes.
std::int64_t list_files(const std::vector<std::string>& written, CheckpointState& state);

/// Threads that may compute a file's digest while this host's ranks train.
int hashing_threads(const Job& job);
/// Threads with which each rank of this host may verify a file before training begins.
int verifying_threads(const Job& job);

/// Another rank's failure makes the folder's owner remove it unfinished, so that this rank cannot write there any more: that is
/// no failure of the disk. Throws the PeerError of the rank that failed first; returns if it was this one.
void throw_first_failure(JoinedJob& job, const std::string& folder, const std::exception& error);

}  // namespace consist
