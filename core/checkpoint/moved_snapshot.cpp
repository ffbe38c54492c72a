#include "core/checkpoint/moved_snapshot.h"

#include <algorithm>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>

#include "consist/error.h"
#include "consist/log.h"
#include "consist/text.h"
#include "core/base/write_text.h"
#include "core/checkpoint/save_checkpoint.h"
#include "core/checkpoint/written_files.h"

namespace consist {
namespace {

using nlohmann::json;

/// Elements of a tensor that nobody has given yet.
class MissingElements {
 public:
  explicit MissingElements(std::span<const LocalRange> needed) {
    for (const LocalRange& range : needed) left_.push_back({range.logical, range.logical + range.count});
    std::ranges::sort(left_);
  }
  bool empty() const noexcept { return left_.empty(); }

  /// Takes these elements away. True if some of them were missing.
  bool take(std::span<const LocalRange> given) {
    std::vector<Interval> there, rest;
    for (const LocalRange& range : given) there.push_back({range.logical, range.logical + range.count});
    std::ranges::sort(there);
    bool any = false;
    std::size_t next = 0;
    for (auto [first, end] : left_) {
      while (next < there.size() && there[next].second <= first) ++next;
      for (std::size_t at = next; at < there.size() && there[at].first < end; ++at) {
        if (there[at].second <= first) continue;
        any = true;
        if (there[at].first > first) rest.push_back({first, there[at].first});
        first = std::min(end, there[at].second);
      }
      if (first < end) rest.push_back({first, end});
    }
    left_ = std::move(rest);
    return any;
  }

 private:
  using Interval = std::pair<std::int64_t, std::int64_t>;  // first and behind the last
  std::vector<Interval> left_;
};

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream lines(text);
  std::vector<std::string> words;
  for (std::string word; lines >> word;) words.push_back(word);
  return words;
}

}  // namespace

std::optional<MovedSnapshot> MovedSnapshot::open(JoinedJob& job, std::span<const SnapshotHost> hosts, std::size_t own,
                                                 const std::vector<std::string>& folders, std::int64_t step,
                                                 const std::string& layout, const std::vector<std::string>& named) {
  MovedSnapshot snapshot(job, hosts, own);
  snapshot.look_for_files(folders, step, layout);
  snapshot.verify();
  snapshot.tell_files();
  if (!snapshot.is_whole(named)) return std::nullopt;
  return snapshot;
}

std::size_t MovedSnapshot::place() const {
  const std::vector<int>& ranks = hosts_[own_].ranks;
  return static_cast<std::size_t>(std::ranges::find(ranks, job_->rank()) - ranks.begin());
}

void MovedSnapshot::look_for_files(const std::vector<std::string>& folders, std::int64_t step, const std::string& layout) {
  for (const std::string& folder : folders) {
    const std::string path = checkpoint_path(folder, step);
    if (!std::filesystem::exists(path)) continue;
    const Checkpoint checkpoint(path);
    if (checkpoint.state().layout != layout) continue;
    if (state_.step != step) state_ = checkpoint.state();
    for (const CheckpointFile& entry : checkpoint.state().files)
      files_.try_emplace(entry.name, File{entry, {own_}, path + "/" + entry.name, {}});
  }
  state_.files.clear();
}

void MovedSnapshot::verify() {
  const std::vector<int>& ranks = hosts_[own_].ranks;
  std::string damaged;
  std::size_t number = 0;
  for (const auto& [name, file] : files_) {
    if (number++ % ranks.size() != place()) continue;
    try {
      CheckpointState state;
      state.files = {file.entry};
      Checkpoint(std::filesystem::path(file.here).parent_path().string(), state).verify(name, verifying_threads(*job_));
    } catch (const Error& error) {
      log::warn(std::string("a file of the snapshot in memory cannot be used: ") + error.what());
      damaged += name + " ";
    }
  }
  for (const std::string& told : job_->all_gather("snapshot.moved.damaged", damaged, checkpoint_timeout, ranks)) {
    for (const std::string& name : words_of(told)) files_.erase(name);
  }
}

/// Each host tells the others of its files and of the parts in them.
void MovedSnapshot::tell_files() {
  json mine = json::object();
  if (place() == 0 && !files_.empty()) {
    mine["state"] = to_text(state_);
    for (const auto& [name, file] : files_) {
      const SafetensorsFile opened(file.here);
      json parts = json::object();
      for (const auto& [tensor, stored] : opened.tensors()) parts[tensor] = part_text_in(opened, tensor);
      mine["files"].push_back({{"entry", to_text(file.entry)}, {"parts", std::move(parts)}});
    }
  }
  const std::vector<std::string> told =
      job_->all_gather("snapshot.moved.files", place() == 0 ? mine.dump() : "", checkpoint_timeout);
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    const std::string& text = told[static_cast<std::size_t>(hosts_[host].ranks.front())];
    const json of_host = json::parse(text);
    if (!of_host.contains("files")) continue;
    state_ = parse_checkpoint_state(of_host.at("state").get<std::string>(), "the state of a snapshot on " + hosts_[host].name);
    mesh_ = parse_mesh(state_.layout, "the state of a snapshot");
    for (const json& listed : of_host.at("files")) {
      const CheckpointFile entry = parse_checkpoint_file(listed.at("entry").get<std::string>());
      File& file = files_.try_emplace(entry.name, File{entry, {}, "", {}}).first->second;
      if (host != own_) file.holders.push_back(host);
      std::ranges::sort(file.holders);
      if (!file.parts.empty()) continue;
      if (!rank_of_checkpoint_file(entry.name))
        throw DataError("a snapshot on " + hosts_[host].name + " has a file " + entry.name + ", which is no rank's");
      for (const auto& [tensor, part] : listed.at("parts").items()) file.parts.emplace(tensor, part.get<std::string>());
    }
  }
}

TensorPart MovedSnapshot::part(const File& file, const std::string& tensor) const {
  return part_of(file.parts.at(tensor), mesh_, *rank_of_checkpoint_file(file.entry.name), tensor, file.entry.name);
}

/// The ranks look at a share of the tensors each: where these are cut along an inner dimension they have very many ranges.
bool MovedSnapshot::is_whole(const std::vector<std::string>& named) const {
  std::set<std::string> tensors;
  for (const auto& [name, file] : files_) {
    for (const auto& [tensor, text] : file.parts) tensors.insert(tensor);
  }
  bool whole = std::ranges::all_of(named, [&](const std::string& name) { return tensors.contains(name); });
  int number = 0;
  for (const std::string& tensor : tensors) {
    if (number++ % job_->size() != job_->rank()) continue;
    std::optional<MissingElements> missing;
    for (const auto& [name, file] : files_) {
      if (!file.parts.contains(tensor)) continue;
      const TensorPart there = part(file, tensor);
      const LocalRange all{0, 0, there.whole.elements()};
      if (!missing) missing.emplace(std::span(&all, 1));
      missing->take(there.ranges);
    }
    whole = whole && missing->empty();
  }
  const std::vector<std::string> told = job_->all_gather("snapshot.moved.whole", whole ? "yes" : "no", checkpoint_timeout);
  return std::ranges::all_of(told, [](const std::string& text) { return text == "yes"; });
}

/// The files of other hosts that this rank needs beside those of its own host.
std::vector<std::string> MovedSnapshot::lacking(const NeededRanges& needed) const {
  std::set<std::string> names;
  for (const auto& [tensor, ranges] : needed) {
    MissingElements missing(ranges);
    for (const bool here : {true, false}) {
      for (const auto& [name, file] : files_) {
        if (missing.empty() || file.here.empty() == here || !file.parts.contains(tensor)) continue;
        if (missing.take(part(file, tensor).ranges) && !here) names.insert(name);
      }
    }
  }
  return {names.begin(), names.end()};
}

/// The same on all ranks. Files of a host are divided over its ranks, and those of several holders over these.
std::vector<MovedSnapshot::Transfer> MovedSnapshot::plan_transfers(const NeededRanges& needed) const {
  std::string mine;
  for (const std::string& name : lacking(needed)) mine += name + " ";
  const std::vector<std::string> told = job_->all_gather("snapshot.moved.lacking", mine, checkpoint_timeout);
  std::vector<Transfer> transfers;
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    std::set<std::string> names;
    for (const int rank : hosts_[host].ranks) {
      for (std::string& name : words_of(told[static_cast<std::size_t>(rank)])) names.insert(std::move(name));
    }
    std::size_t number = 0;
    for (const std::string& name : names) {
      const std::vector<std::size_t>& holders = files_.at(name).holders;
      const std::vector<int>&to = hosts_[host].ranks, &from = hosts_[holders[(host + number) % holders.size()]].ranks;
      transfers.push_back({name, from[number % from.size()], to[number % to.size()]});
      ++number;
    }
  }
  return transfers;
}

/// In rounds in which each rank sends one file and receives one at most, so that whoever sends is expected.
void MovedSnapshot::transfer(FileExchange& exchange, std::vector<Transfer> left, const std::string& folder) const {
  for (int round = 0; !left.empty(); ++round) {
    std::set<int> senders, receivers;
    std::optional<Transfer> sends, receives;
    std::erase_if(left, [&](const Transfer& one) {
      if (senders.contains(one.from) || receivers.contains(one.to)) return false;
      senders.insert(one.from);
      receivers.insert(one.to);
      if (one.from == job_->rank()) sends = one;
      if (one.to == job_->rank()) receives = one;
      return true;
    });
    std::future<void> sending;
    if (sends) {
      sending = std::async(std::launch::async, [this, &exchange, &sends] {
        const File& file = files_.at(sends->file);
        exchange.send(sends->to, std::filesystem::path(file.here).parent_path().string(), file.entry);
      });
    }
    if (receives) exchange.receive({receives->from}, folder);
    if (sends) sending.get();
    job_->all_gather("snapshot.moved.round-" + std::to_string(round), "", checkpoint_timeout);
  }
}

void MovedSnapshot::check_memory(const std::vector<Transfer>& transfers, const std::string& folder) const {
  std::int64_t bytes = 0;
  for (const Transfer& one : transfers) {
    if (std::ranges::find(hosts_[own_].ranks, one.to) != hosts_[own_].ranks.end()) bytes += files_.at(one.file).entry.bytes;
  }
  const auto free = static_cast<std::int64_t>(std::filesystem::space(folder).available);
  if (bytes > free)
    throw UsageError("the ranks on " + hosts_[own_].name + " need " + bytes_text(bytes) + " of other hosts' snapshots in " +
                     folder + ", where " + bytes_text(free) + " are free: more shared memory or more hosts are needed");
}

Checkpoint MovedSnapshot::gather(FileExchange* exchange, const NeededRanges& needed, const std::string& folder) const {
  const std::vector<Transfer> transfers = plan_transfers(needed);
  const std::vector<int>& ranks = hosts_[own_].ranks;
  const auto meet = [&](const char* what) {
    job_->all_gather(std::string("snapshot.moved.") + what, "", checkpoint_timeout, ranks);
  };
  CheckpointState state = state_;
  for (const auto& [name, file] : files_) {
    const auto comes = [&, &file_name = name](const Transfer& one) {
      return one.file == file_name && std::ranges::find(ranks, one.to) != ranks.end();
    };
    if (!file.here.empty() || std::ranges::any_of(transfers, comes)) state.files.push_back(file.entry);
  }
  if (place() == 0) {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    check_memory(transfers, folder);
    for (const auto& [name, file] : files_) {
      if (!file.here.empty()) std::filesystem::create_hard_link(file.here, folder + "/" + name);
    }
    write_text(folder + "/state.json", to_text(state));
  }
  meet("linked");
  if (!transfers.empty() && exchange == nullptr) throw ProgramError("a snapshot on one host lacks files");
  if (!transfers.empty()) transfer(*exchange, transfers, folder);
  meet("gathered");
  Checkpoint gathered(folder, std::move(state));
  for (const Transfer& one : transfers) {
    if (one.to == job_->rank()) gathered.verify(one.file, verifying_threads(*job_));
  }
  meet("verified");
  return gathered;
}

}  // namespace consist
