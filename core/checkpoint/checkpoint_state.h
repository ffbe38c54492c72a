// Contents of a checkpoint beside its tensors: state.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"

namespace consist {

/// One of a checkpoint's files of tensors.
struct CheckpointFile {
  std::string name;  ///< inside the checkpoint's folder
  std::int64_t bytes = 0;
  std::string sha256;  ///< 64 hexadecimal digits: of the file, or as BlockedSha256 makes them
  bool hashed_in_blocks = false;
  bool operator==(const CheckpointFile&) const = default;
};

/// Version of the format that is written. Earlier ones are also read: of version 1 datasets of rows kept the last sequences for
/// evaluation instead of the last rows, and up to version 2 the digest of a large file was its SHA-256.
inline constexpr int checkpoint_version = 3;

struct CheckpointState {
  int version = checkpoint_version;
  std::int64_t step = 0;  ///< optimizer steps done
  std::uint64_t seed = 0;
  std::int64_t data_position = 0;  ///< sequences of the dataset's stream consumed by all ranks together
  int ranks = 1;
  std::string layout;  ///< of the ranks: "data=2"
  /// The room for rows of tokens at experts (CompileRequest::room): more than 1 once rows had found none.
  double room = 1;
  std::string config;  ///< the run's configuration as JSON text, kept as it is
  std::vector<CheckpointFile> files;
  bool operator==(const CheckpointState&) const = default;
};

/// The content of state.json: the fields, and a checksum over them.
CONSIST_API std::string to_text(const CheckpointState& state);
/// The inverse. Throws DataError naming `path` and what is missing, malformed, of another version or does not match the checksum.
CONSIST_API CheckpointState parse_checkpoint_state(std::string_view text, const std::string& path);

/// One line, for a message from the rank that wrote the file to rank 0.
CONSIST_API std::string to_text(const CheckpointFile& file);
/// The inverse. Throws DataError.
CONSIST_API CheckpointFile parse_checkpoint_file(std::string_view text);

}  // namespace consist
