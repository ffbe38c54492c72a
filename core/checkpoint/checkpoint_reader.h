// Finding and reading checkpoints. A run's folder holds one folder per checkpoint:
//   step-00000040/state.json                   CheckpointState, with sizes and checksums of the files
//   step-00000040/rank-00000.safetensors ...   tensors, one file per rank that wrote
// A folder that is still being written, or was when its writer ended, is named step-00000040.partial; it is never read.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "consist/export.h"
#include "core/checkpoint/checkpoint_state.h"
#include "core/checkpoint/tensor_parts.h"
#include "core/weights/safetensors.h"

namespace consist {

struct CheckpointPlace {
  std::int64_t step = 0;
  std::string path;
};

/// The complete checkpoints in a run's folder, the newest first; none if the folder is not there. Says nothing on whether they
/// are sound. Throws SystemError if the folder cannot be read.
CONSIST_API std::vector<CheckpointPlace> list_checkpoints(const std::string& folder);

/// "<folder>/step-00000040"
CONSIST_API std::string checkpoint_path(const std::string& folder, std::int64_t step);
/// "rank-00003.safetensors"
CONSIST_API std::string checkpoint_file_name(int rank);
/// The inverse; nothing for another name.
CONSIST_API std::optional<int> rank_of_checkpoint_file(std::string_view name);

/// An open checkpoint. Const members may be called from several threads.
class CONSIST_API Checkpoint {
 public:
  /// Reads state.json. Throws DataError naming the file and what is wrong with it, SystemError if the system refuses.
  explicit Checkpoint(std::string path);
  /// With what state.json would say; nothing is read.
  Checkpoint(std::string path, CheckpointState state) : path_(std::move(path)), state_(std::move(state)) {}

  const std::string& path() const noexcept { return path_; }
  const CheckpointState& state() const noexcept { return state_; }

  /// Reads every file in whole, in `threads` threads, and compares size and checksum. Throws DataError naming the first that is
  /// missing, cut off or corrupt.
  void verify(int threads) const;
  /// Reads one of the files of state().files so.
  void verify(const std::string& name, int threads) const;
  /// One of the files of state().files: its size is compared, and its header is read. Throws DataError.
  SafetensorsFile open(const std::string& name) const;
  /// The tensors of all files together. `repeats`: as in TensorParts. Throws DataError.
  TensorParts open_all(bool repeats = false) const;

 private:
  const CheckpointFile& entry(const std::string& name) const;
  void verify(const CheckpointFile& file, int threads) const;
  void check_size(const CheckpointFile& file, const InputFile& opened) const;

  std::string path_;
  CheckpointState state_;
};

/// The newest checkpoint in the folder that verify() passes; nothing if there is no checkpoint at all. Each newer one that is
/// refused is logged as a warning and told in `refused` (if given), with file and reason. Throws DataError if there are
/// checkpoints and none is sound: training must not start over unasked.
CONSIST_API std::optional<Checkpoint> latest_checkpoint(const std::string& folder, std::vector<std::string>* refused = nullptr);

}  // namespace consist
