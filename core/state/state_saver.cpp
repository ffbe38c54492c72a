#include "core/state/state_saver.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "consist/error.h"
#include "consist/host.h"
#include "consist/log.h"
#include "consist/text.h"
#include "core/checkpoint/save_checkpoint.h"

namespace consist {
namespace {

namespace fs = std::filesystem;

/// A copy for checkpoints alone may take this share of what the host has available.
constexpr double share_of_copy = 0.5;

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

/// The memory of this host that snapshots may take.
class SnapshotMemory {
 public:
  explicit SnapshotMemory(std::string folder)
      : folder_(std::move(folder)),
        there_(bytes_in(folder_)),
        free_(free_in(folder_)),
        available_(static_cast<double>(available_host_memory())) {}

  /// True if there is enough for snapshots of `kept` bytes at a time and a copy of `copied` bytes that is being written.
  bool fits(double copied, double kept) const { return folder_needs(kept) <= free_ && folder_needs(kept) + copied <= available_; }

  std::string refusal(const std::string& host, double of_host) const {
    const double folder = folder_needs(of_host);
    const bool is_folder = folder > free_;
    return "snapshots of the ranks on " + host + " need " +
           (is_folder ? amount(folder) + " in " + folder_ + " (two of them), where " + amount(free_) + " are free"
                      : amount(folder + of_host) + " of its memory (two of them, and a copy that is being written), of which " +
                            amount(available_) + " are available") +
           ". Give --snapshot-every 0, and a run goes on from its checkpoints alone, or more " +
           (is_folder ? "shared memory (containers: --shm-size)" : "memory or hosts");
  }

 private:
  double folder_needs(double kept) const { return Snapshots::at_once * kept - there_; }

  std::string folder_;
  double there_;  // of the ranks before, which new snapshots replace
  double free_, available_;
};

}  // namespace

StateSaver::StateSaver(JoinedJob& job, std::unique_ptr<CheckpointWriter> disk, std::unique_ptr<Snapshots> snapshots,
                       double most_share)
    : job_(job), disk_(std::move(disk)), snapshots_(std::move(snapshots)), most_share_(most_share) {}

StateSaver::~StateSaver() = default;

void StateSaver::prepare_snapshots(double of_host) {
  const double of_neighbour = snapshots_->bytes_of_neighbour(of_host);
  bool fits = true;
  if (job_.rank() == job_.host_ranks().front()) {
    const SnapshotMemory memory(snapshots_->folder());
    if (!memory.fits(of_host, of_host)) throw UsageError(memory.refusal(std::string(job_.host()), of_host));
    fits = memory.fits(of_host, of_host + of_neighbour);
  }
  const std::vector<std::string> lacking = snapshots_->keep_copies(fits);
  if (lacking.empty() || job_.rank() != 0) return;
  std::string names;
  for (const std::string& name : lacking) names += (names.empty() ? "" : ", ") + name;
  log::warn(
      "snapshots are kept on their own hosts alone, and a host that is lost takes its own with it: memory for two snapshots "
      "of another host is lacking on " +
      names);
}

bool StateSaver::prepare(const std::shared_ptr<Device>& device, const OwnedTensors& tensors, bool beside) {
  if (!snapshots_ && !beside) return true;
  const std::span<const int> ranks = job_.host_ranks();
  const double own = static_cast<double>(tensors.bytes());
  const double of_host = job_.reduce("saving.bytes", {own}, ReduceOp::sum, job_.timeout(), ranks).front();
  if (snapshots_) {
    prepare_snapshots(of_host);
  } else {
    const bool here = of_host <= share_of_copy * static_cast<double>(available_host_memory());
    if (job_.broadcast("saving.fits", here ? "yes" : "no", job_.timeout(), ranks) == "no") return false;
  }
  copy_ = std::make_unique<StagedTensors>(device);
  copy_->reserve(tensors.sources);
  return true;
}

bool StateSaver::is_too_soon() const {
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - copied_;
  return most_share_ > 0 && copied_seconds_ > most_share_ * since.count();
}

StateSaver::Outcome StateSaver::save(const OwnedTensors& of_host, const OwnedTensors& mine, CheckpointState state, Where where) {
  if (where == Where::in_memory && copy_) {
    // A run goes on from a step of which all ranks have a snapshot: they agree on which to make.
    const double soon = is_too_soon() ? 1 : 0, writes = work_.is_running() ? 1 : 0;
    const std::vector<double> of_all = job_.reduce("saving.waits", {soon, writes}, ReduceOp::max, job_.timeout());
    if (of_all[0] > 0) return Outcome::too_soon;
    if (of_all[1] > 0) return Outcome::still_writing;
  }
  work_.finish();
  Work work{std::move(state), of_host, mine, where == Where::on_disk};
  if (!copy_) {
    write(work);
    return Outcome::saved;
  }
  const auto began = std::chrono::steady_clock::now();
  work.of_host.sources = copy_->copy(of_host.sources);
  copied_ = std::chrono::steady_clock::now();
  copied_seconds_ = std::chrono::duration<double>(copied_ - began).count();
  for (TensorSource& source : work.mine.sources)
    source = *std::ranges::find(work.of_host.sources, source.name, &TensorSource::name);
  work_.begin([this, work = std::move(work)] { write(work); });
  return Outcome::saved;
}

void StateSaver::write(const Work& work) {
  if (snapshots_) snapshots_->save(work.state, work.of_host.sources, work.of_host.parts);
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
