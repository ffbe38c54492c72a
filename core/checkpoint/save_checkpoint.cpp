#include "core/checkpoint/save_checkpoint.h"

#include <exception>

#include "consist/error.h"
#include "core/checkpoint/written_files.h"

namespace consist {
std::int64_t save_checkpoint(JoinedJob& job, CheckpointWriter* writer, CheckpointState state,
                             std::span<const TensorSource> tensors, const std::map<std::string, std::string>& parts) {
  const std::string key = "checkpoint." + std::to_string(state.step);
  if ((job.rank() == 0) != (writer != nullptr)) throw ProgramError("rank 0, and no other, has the writer of checkpoints");
  std::string folder;
  try {
    folder = job.broadcast(key + ".begun", writer != nullptr ? writer->begin(state.step) : "", checkpoint_timeout);
    std::string mine;
    if (!tensors.empty())
      mine = to_text(write_checkpoint_file(folder, checkpoint_file_name(job.rank()), tensors, parts, hashing_threads(job)));
    std::int64_t bytes = 0;
    const std::vector<std::string> written = job.gather(key + ".written", mine, checkpoint_timeout);
    if (writer != nullptr) {
      bytes = list_files(written, state);
      writer->commit(state);
    }
    job.barrier(key, checkpoint_timeout);
    return bytes;
  } catch (const std::exception& error) {
    if (writer == nullptr) {
      throw_first_failure(job, folder, error);
    } else {
      job.fail(error.what());  // the others are told before they miss the folder
      writer->abandon();
    }
    throw;
  }
}

std::optional<Checkpoint> find_checkpoint(Job& job, const std::string& folder, std::vector<std::string>* refused) {
  std::optional<Checkpoint> found;
  if (job.rank() == 0) found = latest_checkpoint(folder, refused);
  const std::string path = job.broadcast("checkpoint.found", found ? found->path() : "", checkpoint_timeout);
  if (job.rank() != 0 && !path.empty()) found.emplace(path);
  return found;
}

}  // namespace consist
