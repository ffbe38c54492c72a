#include "core/checkpoint/save_checkpoint.h"

#include "consist/error.h"

namespace consist {

std::int64_t save_checkpoint(Job& job, CheckpointWriter* writer, CheckpointState state, std::span<const TensorSource> tensors,
                             const std::map<std::string, std::string>& parts) {
  const std::string key = "checkpoint." + std::to_string(state.step);
  const auto key_of = [&](int rank) { return key + "." + std::to_string(rank); };
  if ((job.rank() == 0) != (writer != nullptr)) throw ProgramError("rank 0, and no other, has the writer of checkpoints");
  try {
    if (writer != nullptr) job.put(key, writer->begin(state.step));
    const std::string folder = job.get(key, checkpoint_timeout);
    std::string mine;
    if (!tensors.empty()) mine = to_text(write_checkpoint_file(folder, checkpoint_file_name(job.rank()), tensors, parts));
    std::int64_t bytes = 0;
    if (writer == nullptr) {
      job.put(key_of(job.rank()), mine);
    } else {
      state.files.clear();
      for (int rank = 0; rank < job.size(); ++rank) {
        const std::string text = rank == 0 ? mine : job.get(key_of(rank), checkpoint_timeout);
        if (text.empty()) continue;
        state.files.push_back(parse_checkpoint_file(text));
        bytes += state.files.back().bytes;
      }
      writer->commit(state);
    }
    job.barrier(key, checkpoint_timeout);
    return bytes;
  } catch (...) {
    if (writer != nullptr) writer->abandon();
    throw;
  }
}

std::optional<Checkpoint> find_checkpoint(Job& job, const std::string& folder, std::vector<std::string>* refused) {
  constexpr const char* key = "checkpoint.found";
  std::optional<Checkpoint> found;
  if (job.rank() == 0) {
    found = latest_checkpoint(folder, refused);
    job.put(key, found ? found->path() : "");
    return found;
  }
  const std::string path = job.get(key, checkpoint_timeout);
  if (!path.empty()) found.emplace(path);
  return found;
}

}  // namespace consist
