#include "core/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "consist/error.h"
#include "consist/host.h"
#include "consist/log.h"
#include "core/base/number.h"

namespace consist {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxStateBytes = 64'000'000;
constexpr std::string_view kPrefix = "step-";

/// The step of a folder's name; nothing if it is not that of a complete checkpoint.
std::optional<std::int64_t> step_of(std::string_view name) {
  std::int64_t step = 0;
  if (!name.starts_with(kPrefix) || !parse_number(name.substr(kPrefix.size()), step) || step < 0) return std::nullopt;
  return step;
}

}  // namespace

std::string checkpoint_path(const std::string& folder, std::int64_t step) {
  char name[40];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
  return (fs::path(folder) / name).string();
}

std::string checkpoint_file_name(int rank) {
  char name[40];
  std::snprintf(name, sizeof name, "rank-%05d.safetensors", rank);
  return name;
}

std::optional<int> rank_of_checkpoint_file(std::string_view name) {
  constexpr std::string_view prefix = "rank-";
  int rank = 0;
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  std::from_chars(name.data(), name.data() + name.size(), rank);
  return rank >= 0 && std::string(prefix).append(name) == checkpoint_file_name(rank) ? std::optional(rank) : std::nullopt;
}

std::vector<CheckpointPlace> list_checkpoints(const std::string& folder) {
  std::error_code error;
  if (!fs::exists(folder, error) && !error) return {};
  std::vector<CheckpointPlace> found;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const std::optional<std::int64_t> step = step_of(name);
    if (step && entry->is_directory(error)) found.push_back({*step, entry->path().string()});
  }
  if (error) throw SystemError("cannot read the folder of checkpoints " + folder + ": " + error.message());
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return found;
}

Checkpoint::Checkpoint(std::string path) : path_(std::move(path)) {
  const std::string file = path_ + "/state.json";
  state_ = parse_checkpoint_state(read_text(file, kMaxStateBytes), file);
}

void Checkpoint::check_size(const CheckpointFile& file, const InputFile& opened) const {
  if (opened.size() == file.bytes) return;
  throw DataError(opened.path() + (opened.size() < file.bytes ? " is cut off: it has " : " is corrupt: it has ") +
                  std::to_string(opened.size()) + " bytes, written were " + std::to_string(file.bytes));
}

void Checkpoint::verify(const CheckpointFile& file, int threads) const {
  const InputFile opened(path_ + "/" + file.name);
  check_size(file, opened);
  if ((file.hashed_in_blocks ? blocked_sha256_of(opened, threads) : sha256_of(opened)) != file.sha256)
    throw DataError(opened.path() + " is corrupt: its SHA-256 is not the one that was written");
}

void Checkpoint::verify(int threads) const {
  for (const CheckpointFile& file : state_.files) verify(file, threads);
}

void Checkpoint::verify(const std::string& name, int threads) const {
  verify(entry(name), threads);
}

const CheckpointFile& Checkpoint::entry(const std::string& name) const {
  const auto file =
      std::find_if(state_.files.begin(), state_.files.end(), [&](const CheckpointFile& f) { return f.name == name; });
  if (file == state_.files.end()) throw DataError("the checkpoint " + path_ + " has no file " + name);
  return *file;
}

SafetensorsFile Checkpoint::open(const std::string& name) const {
  const std::string path = path_ + "/" + name;
  check_size(entry(name), InputFile(path));
  return SafetensorsFile(path);
}

TensorParts Checkpoint::open_all(bool repeats) const {
  TensorParts parts(parse_mesh(state_.layout, path_ + "/state.json"), repeats);
  for (const CheckpointFile& file : state_.files) {
    const std::optional<int> rank = rank_of_checkpoint_file(file.name);
    if (!rank) throw DataError("the checkpoint " + path_ + " has a file " + file.name + ", which is no rank's");
    parts.add(*rank, open(file.name));
  }
  return parts;
}

std::optional<Checkpoint> latest_checkpoint(const std::string& folder, std::vector<std::string>* refused) {
  const std::vector<CheckpointPlace> places = list_checkpoints(folder);
  std::string first_reason;
  for (const CheckpointPlace& place : places) {
    try {
      Checkpoint checkpoint(place.path);
      if (checkpoint.state().step != place.step) {
        throw DataError(place.path + " is corrupt: its state is that of step " + std::to_string(checkpoint.state().step));
      }
      checkpoint.verify(usable_cores());  // the other ranks wait for it
      return checkpoint;
    } catch (const Error& error) {
      const std::string text = "the checkpoint of step " + std::to_string(place.step) + " cannot be used: " + error.what();
      log::warn(text + "; trying the one before it");
      if (refused != nullptr) refused->push_back(text);
      if (first_reason.empty()) first_reason = error.what();
    }
  }
  if (places.empty()) return std::nullopt;
  throw DataError("none of the " + std::to_string(places.size()) + " checkpoints in " + folder +
                  " can be used; the newest: " + first_reason + ". Remove the folder to start over, or choose another one");
}

}  // namespace consist
