#include "core/state/state_saver.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "consist/error.h"
#include "consist/host.h"
#include "consist/text.h"
#include "core/checkpoint/save_checkpoint.h"

namespace consist {
namespace {

namespace fs = std::filesystem;

/// A copy for checkpoints alone may take this share of what the host has available.
constexpr double share_of_copy = 0.5;
/// Snapshots of a host: one that is whole, and one that is being written.
constexpr int snapshots_at_once = 2;

/// Bytes of all files in the folder.
double bytes_in(const std::string& folder) {
  std::error_code error;
  double sum = 0;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_regular_file(ignored)) sum += static_cast<double>(entry->file_size(ignored));
  }
  return sum;
}

double free_in(const std::string& folder) {
  struct statvfs info {};
  if (statvfs(folder.c_str(), &info) != 0) return 0;
  return static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
}

std::string amount(double bytes) {
  return bytes_text(static_cast<std::int64_t>(bytes));
}

}  // namespace

StateSaver::StateSaver(JoinedJob& job, std::unique_ptr<CheckpointWriter> disk, std::string snapshots)
    : job_(job), snapshots_(std::move(snapshots)), disk_(std::move(disk)) {
  if (!snapshots_.empty() && job.rank() == job.host_ranks().front())
    memory_ = std::make_unique<CheckpointWriter>(snapshots_, snapshots_at_once);
}

StateSaver::~StateSaver() = default;

void StateSaver::check_snapshot_memory(double of_host) const {
  const double there = bytes_in(snapshots_);  // of the ranks before, which new snapshots replace
  const double folder = snapshots_at_once * of_host - there, all = folder + of_host;
  const double room = free_in(snapshots_), available = static_cast<double>(available_host_memory());
  if (folder <= room && all <= available) return;
  const bool is_folder = folder > room;
  throw UsageError("snapshots of the ranks on " + std::string(job_.host()) + " need " +
                   (is_folder ? amount(folder) + " in " + snapshots_ + " (two of them), where " + amount(room) + " are free"
                              : amount(all) + " of its memory (two of them, and a copy that is being written), of which " +
                                    amount(available) + " are available") +
                   ". Give --snapshot-every 0, and a run goes on from its checkpoints alone, or more " +
                   (is_folder ? "shared memory (containers: --shm-size)" : "memory or hosts"));
}

bool StateSaver::prepare(const std::shared_ptr<Device>& device, const OwnedTensors& tensors, bool beside) {
  if (snapshots_.empty() && !beside) return true;
  const std::span<const int> ranks = job_.host_ranks();
  const double own = static_cast<double>(tensors.bytes());
  const double of_host = job_.reduce("saving.bytes", {own}, ReduceOp::sum, job_.timeout(), ranks).front();
  bool fits = true;
  if (job_.rank() == ranks.front()) {
    if (!snapshots_.empty()) check_snapshot_memory(of_host);
    fits = !snapshots_.empty() || of_host <= share_of_copy * static_cast<double>(available_host_memory());
  }
  fits = job_.broadcast("saving.fits", fits ? "yes" : "no", job_.timeout(), ranks) == "yes";
  if (!fits) return false;
  copy_ = std::make_unique<StagedTensors>(device);
  copy_->reserve(tensors.sources);
  return true;
}

bool StateSaver::save(const OwnedTensors& of_host, const OwnedTensors& mine, CheckpointState state, bool to_disk) {
  if (!to_disk && copy_) {
    // A run goes on from a step of which all ranks have a snapshot: they agree on which to make.
    const double writes = work_.is_running() ? 1 : 0;
    if (job_.reduce("saving.writes", {writes}, ReduceOp::max, job_.timeout()).front() > 0) return false;
  }
  work_.finish();
  Work work{std::move(state), of_host, mine, to_disk};
  if (!copy_) {
    write(work);
    return true;
  }
  work.of_host.sources = copy_->copy(of_host.sources);
  for (TensorSource& source : work.mine.sources)
    source = *std::ranges::find(work.of_host.sources, source.name, &TensorSource::name);
  work_.begin([this, work = std::move(work)] { write(work); });
  return true;
}

void StateSaver::write(const Work& work) {
  if (!snapshots_.empty()) save_snapshot(job_, memory_.get(), work.state, work.of_host.sources, work.of_host.parts);
  if (!work.to_disk) return;
  const std::int64_t bytes = save_checkpoint(job_, disk_.get(), work.state, work.mine.sources, work.mine.parts);
  const std::lock_guard lock(mutex_);
  saved_.push_back({work.state.step, bytes});
}

std::vector<StateSaver::Saved> StateSaver::take_saved() {
  const std::lock_guard lock(mutex_);
  return std::exchange(saved_, {});
}

}  // namespace consist
