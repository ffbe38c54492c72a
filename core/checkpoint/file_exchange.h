// Files of checkpoints that ranks of a job send one another, each over a connection of its own.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "consist/contact.h"
#include "consist/handshake.h"
#include "core/checkpoint/checkpoint_state.h"
#include "core/job/job.h"

namespace consist {

/// A rank's end. Every send() meets one receive() that names its sender; connections are proven with the job's token. Bytes are
/// neither encrypted nor checked: a checkpoint's reader compares checksums. ERRORS: PeerError (through Job::blame) where a
/// connection breaks, the job fails or no byte has moved for Job::timeout(); SystemError for files.
class FileExchange {
 public:
  /// Called by every rank of the job, which outlives this.
  explicit FileExchange(JoinedJob& job);

  /// Sends the file of that name and size in the folder; nothing: tells that there is none. THREADS: beside one receive().
  void send(int to, const std::string& folder, const std::optional<CheckpointFile>& file) const;
  /// Receives what each of these ranks sends, into the folder, and returns the files. THREADS: one at a time.
  std::vector<CheckpointFile> receive(const std::vector<int>& from, const std::string& folder);

 private:
  std::string purpose(int to) const;
  std::vector<network::Socket> accept_all(const std::vector<int>& from);

  JoinedJob& job_;
  std::vector<network::Contact> contacts_;  // by rank
  std::unique_ptr<network::Gate> gate_;
};

}  // namespace consist
