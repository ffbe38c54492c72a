// A checkpoint of all ranks of a job.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "consist/export.h"
#include "core/checkpoint/checkpoint_reader.h"
#include "core/checkpoint/checkpoint_writer.h"
#include "core/job/job.h"

namespace consist {

/// Time that one rank waits for the others' files. It is long because it only ends a wait for a disk: a rank that dies ends all
/// waits at once.
inline constexpr std::chrono::minutes checkpoint_timeout{30};

/// Called by every rank with the tensors that it writes (none: no file of this rank) and what parts they are (see
/// tensor_parts.h); `writer` on rank 0, null elsewhere. `state` counts on rank 0, its `files` are filled in here. Returns on
/// every rank when the checkpoint is complete on the disk. A step is saved once per job. Throws what CheckpointWriter and
/// write_checkpoint_file throw, and PeerError where another rank failed; the unfinished checkpoint is removed then. Returns the
/// bytes that all ranks wrote on rank 0, and 0 elsewhere.
CONSIST_API std::int64_t save_checkpoint(JoinedJob& job, CheckpointWriter* writer, CheckpointState state,
                                         std::span<const TensorSource> tensors,
                                         const std::map<std::string, std::string>& parts = {});

/// Called by every rank: the checkpoint that rank 0 finds with latest_checkpoint(), having verified it for all. What it refused
/// is told in `refused` on rank 0. Throws as latest_checkpoint does, and DataError on a rank that cannot read what rank 0 found.
CONSIST_API std::optional<Checkpoint> find_checkpoint(Job& job, const std::string& folder,
                                                      std::vector<std::string>* refused = nullptr);

}  // namespace consist
