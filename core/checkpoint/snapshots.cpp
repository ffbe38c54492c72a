#include "core/checkpoint/snapshots.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <future>
#include <set>
#include <sstream>
#include <utility>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/log.h"
#include "core/checkpoint/save_checkpoint.h"
#include "core/checkpoint/written_files.h"

namespace consist {
namespace {

constexpr const char* copies_prefix = "of-rank-";
constexpr const char* gathered_folder = "/gathered";

/// The state of a snapshot; nothing if it cannot be read.
std::optional<CheckpointState> state_in(const std::string& path) {
  try {
    return Checkpoint(path).state();
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// True if these ranks have written it, in this layout.
bool is_of(const CheckpointState& state, const std::string& layout, const std::vector<int>& ranks) {
  const auto is_theirs = [&](const CheckpointFile& file) {
    const std::optional<int> rank = rank_of_checkpoint_file(file.name);
    return rank && std::ranges::find(ranks, *rank) != ranks.end();
  };
  return state.layout == layout && std::ranges::all_of(state.files, is_theirs);
}

/// The steps of which a folder has a snapshot of these ranks.
std::string steps_text(const std::string& folder, const std::string& layout, const std::vector<int>& ranks) {
  std::string text;
  for (const CheckpointPlace& place : list_checkpoints(folder)) {
    const std::optional<CheckpointState> state = state_in(place.path);
    if (state && is_of(*state, layout, ranks)) text += std::to_string(place.step) + " ";
  }
  return text;
}

/// A snapshot as a host tells the others of it: a line.
struct Listed {
  std::int64_t step = 0;
  bool first = false;  // it has the file of rank 0
  bool moved = false;  // its ranks lay otherwise
  std::string layout;

  std::string text() const {
    return std::to_string(step) + " " + std::to_string(first) + " " + std::to_string(moved) + " " + layout + "\n";
  }
  static Listed from(const std::string& line) {
    std::istringstream words(line);
    Listed listed;
    words >> listed.step >> listed.first >> listed.moved >> listed.layout;
    return listed;
  }
};

/// Lists the snapshots in a folder. `ranks`: those that would write there now; none: it has copies.
std::string listed_text(const std::string& folder, const std::string& layout, const std::vector<int>& ranks) {
  std::string text;
  for (const CheckpointPlace& place : list_checkpoints(folder)) {
    const std::optional<CheckpointState> state = state_in(place.path);
    if (!state) continue;
    const bool first = std::ranges::find(state->files, checkpoint_file_name(0), &CheckpointFile::name) != state->files.end();
    const bool in_place = ranks.empty() ? state->layout == layout : is_of(*state, layout, ranks);
    text += Listed{place.step, first, !in_place, state->layout}.text();
  }
  return text;
}

std::set<std::int64_t> steps_from(const std::string& text) {
  std::istringstream words(text);
  std::set<std::int64_t> steps;
  for (std::int64_t step = 0; words >> step;) steps.insert(step);
  return steps;
}

/// The folders of copies.
std::vector<std::string> copies_in(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> paths;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().starts_with(copies_prefix)) paths.push_back(entry->path().string());
  }
  std::ranges::sort(paths);
  return paths;
}

/// Calls `body`, which writes to `folder` with the other ranks of the host. What it throws ends the job, and leaves nothing
/// unfinished.
template <typename Body>
void write_together(JoinedJob& job, CheckpointWriter* writer, const std::string& folder, const Body& body) {
  try {
    body();
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

}  // namespace

std::size_t keeper_of(std::size_t host, std::size_t hosts) {
  const std::size_t of_three = hosts % 2 == 0 ? hosts : hosts - 3;  // the first one of the ring
  return host < of_three ? host ^ 1U : of_three + (host - of_three + 1) % 3;
}

std::size_t kept_by(std::size_t host, std::size_t hosts) {
  const std::size_t of_three = hosts % 2 == 0 ? hosts : hosts - 3;
  return host < of_three ? host ^ 1U : of_three + (host - of_three + 2) % 3;
}

Snapshots::Snapshots(JoinedJob& job, std::string folder) : job_(job), folder_(std::move(folder)) {
  const int leader = job.host_ranks().front();
  const std::vector<std::string> told =
      job.all_gather("snapshot.hosts", std::to_string(leader) + " " + std::string(job.host()), checkpoint_timeout);
  std::map<int, Host> hosts;
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    Host& of_rank = hosts[std::stoi(told[rank])];
    of_rank.ranks.push_back(static_cast<int>(rank));
    of_rank.name = told[rank].substr(told[rank].find(' ') + 1);
  }
  for (auto& [first, of_first] : hosts) {
    if (first == leader) own_ = hosts_.size();
    hosts_.push_back(std::move(of_first));
  }
  if (job.rank() == leader) writer_ = std::make_unique<CheckpointWriter>(folder_, at_once);
  if (hosts_.size() < 2) return;
  if (job.rank() == leader) copies_ = std::make_unique<CheckpointWriter>(folder_of_copies(), at_once);
  exchange_ = std::make_unique<FileExchange>(job);
}

std::string Snapshots::folder_of_copies() const {
  return folder_ + "/" + copies_prefix + std::to_string(hosts_[kept_by(own_, hosts_.size())].ranks.front());
}

std::size_t Snapshots::place() const {
  return static_cast<std::size_t>(std::ranges::find(host().ranks, job_.rank()) - host().ranks.begin());
}

double Snapshots::bytes_of_neighbour(double of_host) const {
  const std::vector<std::string> told = job_.all_gather("snapshot.bytes", std::to_string(of_host), checkpoint_timeout);
  return hosts_.size() < 2 ? 0 : std::stod(told[static_cast<std::size_t>(hosts_[kept_by(own_, hosts_.size())].ranks.front())]);
}

std::vector<std::string> Snapshots::keep_copies(bool fits) {
  const std::vector<std::string> told = job_.all_gather("snapshot.fits", fits ? "yes" : "no", checkpoint_timeout);
  std::vector<std::string> lacking;
  for (const Host& one : hosts_) {
    if (told[static_cast<std::size_t>(one.ranks.front())] == "no") lacking.push_back(one.name);
  }
  keeps_copies_ = hosts_.size() > 1 && lacking.empty();
  return lacking;
}

void Snapshots::save(CheckpointState state, std::span<const TensorSource> tensors,
                     const std::map<std::string, std::string>& parts) {
  const std::string key = "snapshot." + std::to_string(state.step);
  const Ranks& ranks = host().ranks;
  std::string folder;
  write_together(job_, writer_.get(), folder, [&] {
    folder = job_.broadcast(key + ".begun", writer_ ? writer_->begin(state.step) : "", checkpoint_timeout, ranks);
    std::optional<CheckpointFile> mine;
    if (!tensors.empty())
      mine = write_checkpoint_file(folder, checkpoint_file_name(job_.rank()), tensors, parts, hashing_threads(job_));
    const std::vector<std::string> written = job_.gather(key + ".written", mine ? to_text(*mine) : "", checkpoint_timeout, ranks);
    if (writer_) {
      list_files(written, state);
      writer_->commit(state);
    }
    folder.clear();
    if (keeps_copies_) {
      job_.barrier(key + ".whole",
                   checkpoint_timeout);  // hosts write at speeds of their own: all are ready to receive from here on
      copy(state, mine);
    }
    job_.barrier(key, checkpoint_timeout);  // the older ones count until here
    if (writer_) writer_->keep_newest();
    if (copies_ && keeps_copies_) copies_->keep_newest();
    if (writer_ && std::exchange(has_former_copies_, false)) {
      std::error_code ignored;
      for (const std::string& path : copies_in(folder_)) {
        if (hosts_.size() < 2 || path != folder_of_copies()) std::filesystem::remove_all(path, ignored);
      }
    }
  });
}

/// Gives this host's snapshot to its keeper, and takes the one that is kept here. Both at once: each host does.
void Snapshots::copy(const CheckpointState& state, const std::optional<CheckpointFile>& mine) {
  const std::string key = "snapshot." + std::to_string(state.step);
  const Ranks &ranks = host().ranks, &givers = hosts_[kept_by(own_, hosts_.size())].ranks,
              &takers = hosts_[keeper_of(own_, hosts_.size())].ranks;
  Ranks from;
  for (std::size_t n = place(); n < givers.size(); n += ranks.size()) from.push_back(givers[n]);
  std::string folder;
  write_together(job_, copies_.get(), folder, [&] {
    folder = job_.broadcast(key + ".copying", copies_ ? copies_->begin(state.step) : "", checkpoint_timeout, ranks);
    std::future<void> sending = std::async(std::launch::async, [&] {
      exchange_->send(takers[place() % takers.size()], checkpoint_path(folder_, state.step), mine);
    });
    std::string told;
    for (const CheckpointFile& file : exchange_->receive(from, folder)) told += to_text(file) + "\n";
    sending.get();
    const std::vector<std::string> copied = job_.gather(key + ".copied", told, checkpoint_timeout, ranks);
    if (!copies_) return;
    CheckpointState of_giver = state;
    list_files(copied, of_giver);
    copies_->commit(of_giver);
  });
}

std::vector<std::string> Snapshots::folders() const {
  std::vector<std::string> all{folder_};
  for (std::string& path : copies_in(folder_)) all.push_back(std::move(path));
  return all;
}

std::optional<Checkpoint> Snapshots::find(const std::string& layout, const std::vector<std::string>& named) {
  std::optional<Checkpoint> found = find_in_place(layout);
  return found ? std::move(found) : find_moved(layout, named);
}

std::optional<Checkpoint> Snapshots::find_in_place(const std::string& layout) {
  // The steps that each host has of its own, and of the host whose copies it keeps.
  const std::string own = writer_ ? steps_text(folder_, layout, host().ranks) : "",
                    copied = copies_ ? steps_text(folder_of_copies(), layout, hosts_[kept_by(own_, hosts_.size())].ranks) : "";
  const std::vector<std::string> of_own = job_.all_gather("snapshot.steps", own, checkpoint_timeout),
                                 of_copies = job_.all_gather("snapshot.copies", copied, checkpoint_timeout);
  const auto steps_of = [&](const std::vector<std::string>& told, std::size_t host) {
    return steps_from(told[static_cast<std::size_t>(hosts_[host].ranks.front())]);
  };
  std::set<std::int64_t> common;
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    std::set<std::int64_t> there = steps_of(of_own, host);
    if (hosts_.size() > 1) there.merge(steps_of(of_copies, keeper_of(host, hosts_.size())));
    if (host > 0) std::erase_if(there, [&](std::int64_t step) { return !common.contains(step); });
    common = std::move(there);
  }
  if (common.empty()) return std::nullopt;
  const std::int64_t step = *common.rbegin();
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    if (!steps_of(of_own, host).contains(step)) fetch(host, step);
  }
  return verified(step);
}

/// This host's snapshot, if all ranks find theirs sound.
std::optional<Checkpoint> Snapshots::verified(std::int64_t step) {
  std::optional<Checkpoint> found;
  std::string problem;
  try {
    found.emplace(checkpoint_path(folder_, step));
    const std::string mine = checkpoint_file_name(job_.rank());
    const std::vector<CheckpointFile>& files = found->state().files;
    if (std::ranges::find(files, mine, &CheckpointFile::name) != files.end()) found->verify(mine, verifying_threads(job_));
  } catch (const Error& error) {
    problem = error.what();
  }
  for (const std::string& of_rank : job_.all_gather("snapshot.problems", problem, checkpoint_timeout)) {
    if (of_rank.empty()) continue;
    if (job_.rank() == 0) log::warn("the snapshot in memory cannot be used: " + of_rank);
    return std::nullopt;
  }
  return found;
}

/// Only snapshots of which rank 0 has written its file count: then it has recorded that step, too.
std::optional<Checkpoint> Snapshots::find_moved(const std::string& layout, const std::vector<std::string>& named) {
  std::string mine;
  if (writer_) {
    for (const std::string& folder : folders()) mine += listed_text(folder, layout, folder == folder_ ? host().ranks : Ranks{});
  }
  using Kind = std::pair<std::int64_t, std::string>;  // step and layout
  std::set<Kind> moved, first;
  for (const std::string& told : job_.all_gather("snapshot.moved", mine, checkpoint_timeout)) {
    std::istringstream lines(told);
    for (std::string line; std::getline(lines, line);) {
      const Listed listed = Listed::from(line);
      if (listed.moved) moved.emplace(listed.step, listed.layout);
      if (listed.first) first.emplace(listed.step, listed.layout);
    }
  }
  for (auto kind = moved.rbegin(); kind != moved.rend(); ++kind) {
    if (!first.contains(*kind)) continue;
    moved_ = MovedSnapshot::open(job_, hosts_, own_, folders(), kind->first, kind->second, named);
    if (moved_) return Checkpoint(checkpoint_path(folder_, kind->first), moved_->state());
    if (job_.rank() == 0)
      log::warn("the snapshot of step " + std::to_string(kind->first) + " is not whole on the hosts that are left");
  }
  return std::nullopt;
}

Checkpoint Snapshots::gather(const NeededRanges& needed) {
  return moved_->gather(exchange_.get(), needed, folder_ + gathered_folder);
}

void Snapshots::drop_gathered() {
  job_.all_gather("snapshot.moved.read", "", checkpoint_timeout, host().ranks);
  std::error_code ignored;
  if (writer_) std::filesystem::remove_all(folder_ + gathered_folder, ignored);
}

void Snapshots::forget_later(std::int64_t step) {
  if (!writer_) return;
  std::error_code ignored;
  for (const std::string& folder : folders()) {
    for (const CheckpointPlace& place : list_checkpoints(folder)) {
      if (place.step > step) std::filesystem::remove_all(place.path, ignored);
    }
  }
}

/// Brings the snapshot of a host that lacks it back from its keeper.
void Snapshots::fetch(std::size_t lacking, std::int64_t step) {
  const std::size_t keeper = keeper_of(lacking, hosts_.size());
  if (job_.rank() == 0) log::info("the snapshot of " + hosts_[lacking].name + " comes from its copy on " + hosts_[keeper].name);
  if (own_ != lacking && own_ != keeper) return;
  const std::string key = "snapshot.state-of-" + std::to_string(lacking);
  Ranks members{hosts_[keeper].ranks.front()};
  members.insert(members.end(), hosts_[lacking].ranks.begin(), hosts_[lacking].ranks.end());
  if (own_ == keeper) {
    if (copies_) {
      const Checkpoint copied(checkpoint_path(folder_of_copies(), step));
      job_.broadcast(key, to_text(copied.state()), checkpoint_timeout, members);
    }
    send_copy(hosts_[lacking].ranks, step);
    return;
  }
  const std::string text = job_.broadcast(key, "", checkpoint_timeout, members);
  receive_copy(parse_checkpoint_state(text, "the state of a snapshot on " + hosts_[keeper].name));
}

void Snapshots::send_copy(const Ranks& to, std::int64_t step) {
  const std::string folder = checkpoint_path(folder_of_copies(), step);
  const std::vector<CheckpointFile> files = Checkpoint(folder).state().files;
  for (std::size_t n = place(); n < to.size(); n += host().ranks.size()) {
    const auto file = std::ranges::find(files, checkpoint_file_name(to[n]), &CheckpointFile::name);
    exchange_->send(to[n], folder, file == files.end() ? std::nullopt : std::optional(*file));
  }
}

void Snapshots::receive_copy(const CheckpointState& copied) {
  const std::string key = "snapshot.fetched-" + std::to_string(own_);
  const Ranks &ranks = host().ranks, &keepers = hosts_[keeper_of(own_, hosts_.size())].ranks;
  std::string folder;
  write_together(job_, writer_.get(), folder, [&] {
    folder = job_.broadcast(key + ".begun", writer_ ? writer_->begin(copied.step) : "", checkpoint_timeout, ranks);
    exchange_->receive({keepers[place() % keepers.size()]}, folder);
    job_.all_gather(key, "", checkpoint_timeout, ranks);
    if (writer_) writer_->commit(copied);
    job_.all_gather(key + ".committed", "", checkpoint_timeout, ranks);
  });
}

}  // namespace consist
