#include "core/checkpoint/save_checkpoint.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <set>
#include <sstream>

#include "consist/error.h"
#include "consist/log.h"

namespace consist {
namespace {

/// Another rank's failure makes rank 0 remove the unfinished folder, in which this rank cannot write any more then: that is no
/// failure of the disk. Throws the PeerError of the rank that failed first; returns if it was this one.
void throw_first_failure(JoinedJob& job, const std::string& folder, const std::exception& error) {
  std::error_code ignored;
  if (folder.empty() || std::filesystem::exists(folder, ignored)) return;
  job.fail(error.what());  // which waits until it is known who failed first
  try {
    job.check();
  } catch (const PeerError& first) {
    if (first.rank() != job.rank()) throw;
  }
}

/// Notes the files that ranks have told of in the state. Returns their bytes.
std::int64_t list_files(const std::vector<std::string>& written, CheckpointState& state) {
  std::int64_t bytes = 0;
  state.files.clear();
  for (const std::string& text : written) {
    if (text.empty()) continue;
    state.files.push_back(parse_checkpoint_file(text));
    bytes += state.files.back().bytes;
  }
  return bytes;
}

/// The newest step of which each host has a snapshot, by the lists of its first rank; "" is none's. -1: there is no such step.
std::int64_t newest_common(const std::vector<std::string>& lists) {
  std::set<std::int64_t> common;
  bool is_first = true;
  for (const std::string& list : lists) {
    if (list.empty()) continue;
    std::set<std::int64_t> steps;
    std::istringstream words(list);
    std::string host;
    words >> host;
    for (std::int64_t step = 0; words >> step;) {
      if (is_first || common.contains(step)) steps.insert(step);
    }
    common = std::move(steps);
    is_first = false;
  }
  return common.empty() ? -1 : *common.rbegin();
}

}  // namespace

std::int64_t save_checkpoint(JoinedJob& job, CheckpointWriter* writer, CheckpointState state,
                             std::span<const TensorSource> tensors, const std::map<std::string, std::string>& parts) {
  const std::string key = "checkpoint." + std::to_string(state.step);
  if ((job.rank() == 0) != (writer != nullptr)) throw ProgramError("rank 0, and no other, has the writer of checkpoints");
  std::string folder;
  try {
    folder = job.broadcast(key + ".begun", writer != nullptr ? writer->begin(state.step) : "", checkpoint_timeout);
    std::string mine;
    if (!tensors.empty()) mine = to_text(write_checkpoint_file(folder, checkpoint_file_name(job.rank()), tensors, parts));
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

void save_snapshot(JoinedJob& job, CheckpointWriter* writer, CheckpointState state, std::span<const TensorSource> tensors,
                   const std::map<std::string, std::string>& parts) {
  const std::string key = "snapshot." + std::to_string(state.step);
  const std::span<const int> ranks = job.host_ranks();
  if ((job.rank() == ranks.front()) != (writer != nullptr))
    throw ProgramError("the first rank of a host, and no other, has the writer of snapshots");
  std::string folder;
  try {
    folder = job.broadcast(key + ".begun", writer != nullptr ? writer->begin(state.step) : "", checkpoint_timeout, ranks);
    std::string mine;
    if (!tensors.empty()) mine = to_text(write_checkpoint_file(folder, checkpoint_file_name(job.rank()), tensors, parts));
    const std::vector<std::string> written = job.gather(key + ".written", mine, checkpoint_timeout, ranks);
    if (writer != nullptr) {
      list_files(written, state);
      writer->commit(state);
    }
    job.barrier(key, checkpoint_timeout);  // the older ones count until here
    if (writer != nullptr) writer->keep_newest();
  } catch (const std::exception& error) {
    if (writer == nullptr) {
      throw_first_failure(job, folder, error);
    } else {
      job.fail(error.what());
      writer->abandon();
    }
    throw;
  }
}

std::optional<Checkpoint> find_snapshot(Job& job, const std::string& folder) {
  std::string list;
  if (job.rank() == job.host_ranks().front()) {
    list = "host";
    for (const CheckpointPlace& place : list_checkpoints(folder)) list += " " + std::to_string(place.step);
  }
  const std::int64_t step = newest_common(job.all_gather("snapshot.steps", list, checkpoint_timeout));
  if (step < 0) return std::nullopt;
  std::optional<Checkpoint> found;
  std::string problem;
  try {
    found.emplace(checkpoint_path(folder, step));
    const std::string mine = checkpoint_file_name(job.rank());
    const std::vector<CheckpointFile>& files = found->state().files;
    if (std::any_of(files.begin(), files.end(), [&](const CheckpointFile& file) { return file.name == mine; }))
      found->verify(mine);
  } catch (const Error& error) {
    problem = error.what();
  }
  for (const std::string& of_rank : job.all_gather("snapshot.problems", problem, checkpoint_timeout)) {
    if (of_rank.empty()) continue;
    if (job.rank() == 0) log::warn("the snapshot in memory cannot be used: " + of_rank);
    return std::nullopt;
  }
  return found;
}

std::optional<Checkpoint> find_checkpoint(Job& job, const std::string& folder, std::vector<std::string>* refused) {
  std::optional<Checkpoint> found;
  if (job.rank() == 0) found = latest_checkpoint(folder, refused);
  const std::string path = job.broadcast("checkpoint.found", found ? found->path() : "", checkpoint_timeout);
  if (job.rank() != 0 && !path.empty()) found.emplace(path);
  return found;
}

}  // namespace consist
