#include "core/checkpoint/checkpoint_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "consist/error.h"
#include "consist/log.h"
#include "core/base/system_error.h"
#include "core/base/write_text.h"
#include "core/checkpoint/checkpoint_reader.h"

namespace consist {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPartial = ".partial";
constexpr const char* kReplaced = ".replaced.partial";

void rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0)
    throw SystemError("cannot rename " + from + " to " + to + ": " + system_error_text(errno));
}

}  // namespace

CheckpointWriter::CheckpointWriter(std::string folder, int keep) : folder_(std::move(folder)), keep_(keep) {
  if (keep < 1) throw UsageError("--checkpoint-keep is " + std::to_string(keep) + "; at least 1 checkpoint must be kept");
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw SystemError("cannot make the folder of checkpoints " + folder_ + ": " + error.message());
  const std::string path = folder_ + "/lock";
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) throw SystemError("cannot write in the folder of checkpoints " + folder_ + ": " + system_error_text(errno));
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    const int reason = errno;
    ::close(std::exchange(lock_, -1));
    if (reason == EWOULDBLOCK) throw UsageError("another run is writing checkpoints to " + folder_ + "; choose another folder");
    throw SystemError("cannot lock " + path + ": " + system_error_text(reason));
  }
  try {
    remove_partial_folders();
  } catch (...) {
    ::close(std::exchange(lock_, -1));
    throw;
  }
}

CheckpointWriter::~CheckpointWriter() {
  abandon();
  ::close(lock_);
}

void CheckpointWriter::remove_partial_folders() {
  std::vector<fs::path> partial;
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("step-") && name.ends_with(kPartial)) partial.push_back(entry->path());
  }
  for (const fs::path& path : partial) {
    // Killed while it replaced a checkpoint by another of the same step: the earlier one is still the best there is.
    const std::string text = path.string();
    const std::string original = text.ends_with(kReplaced) ? text.substr(0, text.size() - std::strlen(kReplaced)) : "";
    if (!original.empty() && !fs::exists(original, error)) {
      rename(text, original);
    } else {
      fs::remove_all(path, error);
    }
  }
  if (error) throw SystemError("cannot remove unfinished checkpoints in " + folder_ + ": " + error.message());
}

std::string CheckpointWriter::begin(std::int64_t step) {
  if (!partial_.empty()) throw ProgramError("a checkpoint in " + folder_ + " is begun before the last one is committed");
  const std::string path = checkpoint_path(folder_, step) + kPartial;
  std::error_code error;
  fs::remove_all(path, error);
  fs::create_directory(path, error);
  if (error) throw SystemError("cannot make the folder " + path + ": " + error.message());
  partial_ = path;
  step_ = step;
  return path;
}

void CheckpointWriter::abandon() noexcept {
  if (partial_.empty()) return;
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
  partial_.clear();
}

void CheckpointWriter::commit(const CheckpointState& state) {
  if (partial_.empty() || state.step != step_)
    throw ProgramError("a checkpoint in " + folder_ + " is committed that was not begun");
  try {
    for (const CheckpointFile& file : state.files) {
      const std::string path = partial_ + "/" + file.name;
      std::error_code error;
      const auto bytes = fs::file_size(path, error);
      if (error || static_cast<std::int64_t>(bytes) != file.bytes) {
        throw DataError("a rank says that it wrote " + std::to_string(file.bytes) + " bytes to " + path + ", but rank 0 finds " +
                        (error ? "no such file" : std::to_string(bytes)) + ": checkpoints need a folder that all ranks share");
      }
    }
    write_text(partial_ + "/state.json", to_text(state));

    const std::string path = checkpoint_path(folder_, step_);
    std::error_code error;
    const bool replaces = fs::exists(path, error);
    if (replaces) rename(path, path + kReplaced);
    rename(partial_, path);
    partial_.clear();
    sync_folder(folder_);
    if (replaces) fs::remove_all(path + kReplaced, error);
  } catch (...) {
    abandon();
    throw;
  }
  prune(state.step, keep_);
}

void CheckpointWriter::keep_newest() {
  prune(step_, 1);
}

void CheckpointWriter::prune(std::int64_t newest, int keep) {
  int kept = 0;
  for (const CheckpointPlace& place : list_checkpoints(folder_)) {
    // Later steps come from before this run went back to an earlier checkpoint; they are replaced when it gets there.
    if (place.step > newest || ++kept <= keep) continue;
    // Renamed first, so that a kill in between leaves no checkpoint with files missing.
    std::error_code error;
    const std::string going = place.path + kPartial;
    fs::rename(place.path, going, error);
    if (!error) fs::remove_all(going, error);
    if (error) log::warn("cannot remove the old checkpoint " + place.path + ": " + error.message());
  }
}

CheckpointFile write_checkpoint_file(const std::string& partial_folder, const std::string& name,
                                     std::span<const TensorSource> tensors, const std::map<std::string, std::string>& parts,
                                     int threads) {
  BlockedSha256 digest(threads);
  AtomicFile file(partial_folder + "/" + name);
  std::map<std::string, std::string> metadata = parts;
  metadata["format"] = "pt";
  write_safetensors(file, tensors, metadata, &digest);
  file.publish();
  return {name, file.bytes(), digest.hex(), file.bytes() > BlockedSha256::block};
}

}  // namespace consist
