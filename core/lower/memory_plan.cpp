#include "core/lower/memory_plan.h"

#include <algorithm>
#include <set>

#include "consist/edit.h"
#include "consist/error.h"

namespace consist {
namespace {

/// Best-fit allocator over addresses that does not own memory: it only decides.
class AddressSpace {
 public:
  explicit AddressSpace(std::int64_t base) : base_(base), top_(base), most_(base) {}

  std::int64_t take(std::int64_t bytes) {
    auto fit = by_size_.lower_bound({bytes, 0});
    if (fit != by_size_.end()) {
      const auto [size, address] = *fit;
      remove(address, size);
      if (size > bytes) insert(address + bytes, size - bytes);
      return address;
    }
    // Nothing fits: grow at the top, using a free block that touches it.
    std::int64_t address = top_;
    if (!by_address_.empty()) {
      const auto last = std::prev(by_address_.end());
      if (last->first + last->second == top_) {
        address = last->first;
        remove(last->first, last->second);
      }
    }
    top_ = address + bytes;
    most_ = std::max(most_, top_);
    return address;
  }

  void give(std::int64_t address, std::int64_t bytes) {
    auto next = by_address_.lower_bound(address);
    if (next != by_address_.end() && address + bytes == next->first) {
      bytes += next->second;
      remove(next->first, next->second);
    }
    auto previous = by_address_.lower_bound(address);
    if (previous != by_address_.begin()) {
      --previous;
      if (previous->first + previous->second == address) {
        address = previous->first;
        bytes += previous->second;
        remove(previous->first, previous->second);
      }
    }
    insert(address, bytes);
  }

  std::int64_t most() const { return most_; }

 private:
  void insert(std::int64_t address, std::int64_t bytes) {
    by_address_[address] = bytes;
    by_size_.insert({bytes, address});
  }
  void remove(std::int64_t address, std::int64_t bytes) {
    by_address_.erase(address);
    by_size_.erase({bytes, address});
  }

  std::int64_t base_, top_, most_;
  std::map<std::int64_t, std::int64_t> by_address_;
  std::set<std::pair<std::int64_t, std::int64_t>> by_size_;
};

struct Lifetime {
  InstructionId first = -1;  // -1: not used by any instruction
  InstructionId last = -1;
};

bool is_persistent(const Tensor& t) {
  return t.state || t.role == Role::input || t.role == Role::metric;
}

/// By storage: from the first to the last instruction that touches any tensor in it.
std::vector<Lifetime> lifetimes(const Program& program) {
  std::vector<Lifetime> by_storage(program.tensors.size());
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    auto touch = [&](TensorId id) {
      if (id == no_tensor) return;
      Lifetime& life = by_storage[static_cast<std::size_t>(program[id].storage)];
      if (life.first < 0) life.first = static_cast<InstructionId>(i);
      life.last = static_cast<InstructionId>(i);
    };
    for (TensorId id : program.instructions[i].inputs) touch(id);
    for (TensorId id : program.instructions[i].outputs) touch(id);
  }
  return by_storage;
}

/// Bytes that a storage takes; `padding` is Program::padding(), counted once per pass.
std::int64_t reserved(const Program& program, TensorId storage, std::int64_t padding) {
  return aligned(program.bytes(storage) + padding);
}

std::size_t space_of(const Tensor& t) {
  return static_cast<std::size_t>(t.space);
}

/// Storages whose first (by_last false) or last use is each instruction.
std::vector<std::vector<TensorId>> storages_at(const Program& program, const std::vector<Lifetime>& lives, bool by_last) {
  std::vector<std::vector<TensorId>> at(program.instructions.size());
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    if (tensor.storage != static_cast<TensorId>(t) || is_persistent(tensor) || lives[t].first < 0) continue;
    at[static_cast<std::size_t>(by_last ? lives[t].last : lives[t].first)].push_back(static_cast<TensorId>(t));
  }
  return at;
}

void place_persistent(const Program& program, MemoryPlan& plan, const std::map<std::string, std::int64_t>* fixed) {
  const std::int64_t padding = program.padding();
  // Addresses that another program has fixed come first; what is new goes behind them.
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    if (tensor.storage != static_cast<TensorId>(t) || !tensor.state || fixed == nullptr) continue;
    auto known = fixed->find(tensor.name);
    if (known == fixed->end()) throw ProgramError("state '" + tensor.name + "' is not in the arena that the program shares");
    plan.address[t] = known->second;
    auto& end = plan.persistent[space_of(tensor)];
    end = std::max(end, known->second + reserved(program, static_cast<TensorId>(t), padding));
  }
  if (fixed != nullptr) {
    for (const auto& [name, address] : *fixed) {
      if (name.empty()) plan.persistent[0] = std::max(plan.persistent[0], address);  // see state_addresses
    }
  }
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    if (tensor.storage != static_cast<TensorId>(t) || !is_persistent(tensor) || plan.address[t] >= 0) continue;
    auto& end = plan.persistent[space_of(tensor)];
    plan.address[t] = end;
    end += reserved(program, static_cast<TensorId>(t), padding);
  }
}

}  // namespace

MemoryPlan plan_memory(const Program& program, std::span<const std::int64_t> workspace_bytes,
                       const std::map<std::string, std::int64_t>* states) {
  if (!workspace_bytes.empty() && workspace_bytes.size() != program.instructions.size()) {
    throw ProgramError("plan_memory needs one workspace size per instruction");
  }
  MemoryPlan plan;
  plan.address.assign(program.tensors.size(), -1);
  plan.workspace.assign(program.instructions.size(), -1);
  place_persistent(program, plan, states);
  const std::int64_t padding = program.padding();

  const std::vector<Lifetime> lives = lifetimes(program);
  const auto begins = storages_at(program, lives, false);
  const auto ends = storages_at(program, lives, true);
  std::array<AddressSpace, memory_spaces> spaces{AddressSpace(plan.persistent[0]), AddressSpace(plan.persistent[1])};
  std::array<std::int64_t, memory_spaces> live = plan.persistent;
  plan.live_peak = plan.persistent;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    for (TensorId id : begins[i]) {
      const std::int64_t bytes = reserved(program, id, padding);
      plan.address[static_cast<std::size_t>(id)] = spaces[space_of(program[id])].take(bytes);
      live[space_of(program[id])] += bytes;
    }
    const std::int64_t scratch = workspace_bytes.empty() ? 0 : aligned(workspace_bytes[i]);
    if (scratch > 0) plan.workspace[i] = spaces[0].take(scratch);
    for (int s = 0; s < memory_spaces; ++s) {
      const std::int64_t now = live[static_cast<std::size_t>(s)] + (s == 0 ? scratch : 0);
      auto& peak = plan.live_peak[static_cast<std::size_t>(s)];
      if (now <= peak) continue;
      peak = now;
      if (s == 0) plan.peak_at = static_cast<InstructionId>(i);
    }
    if (scratch > 0) spaces[0].give(plan.workspace[i], scratch);
    for (TensorId id : ends[i]) {
      const std::int64_t bytes = reserved(program, id, padding);
      spaces[space_of(program[id])].give(plan.address[static_cast<std::size_t>(id)], bytes);
      live[space_of(program[id])] -= bytes;
    }
  }
  for (std::size_t s = 0; s < memory_spaces; ++s) plan.bytes[s] = spaces[s].most();
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    const std::int64_t storage = plan.address[static_cast<std::size_t>(tensor.storage)];
    if (storage >= 0) plan.address[t] = storage + tensor.offset;
  }
  return plan;
}

std::map<std::string, std::int64_t> state_addresses(const Program& program, const MemoryPlan& plan) {
  std::map<std::string, std::int64_t> addresses;
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    if (tensor.state) addresses[tensor.name] = plan.address[t];  // whichever storage it lies in here
  }
  addresses[""] = plan.persistent[0];  // where the persistent part ends: another program's inputs go behind it
  return addresses;
}

namespace {

/// Calls `visit(tensor id, bytes)` for every storage that is live at the plan's peak.
template <typename Visit>
void visit_live(const Program& program, const MemoryPlan& plan, Visit visit) {
  const std::vector<Lifetime> lives = lifetimes(program);
  const std::int64_t padding = program.padding();
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    if (tensor.storage != static_cast<TensorId>(t) || tensor.space != MemorySpace::device) continue;
    const bool live =
        is_persistent(tensor) || (lives[t].first >= 0 && lives[t].first <= plan.peak_at && lives[t].last >= plan.peak_at);
    if (live) visit(static_cast<TensorId>(t), reserved(program, static_cast<TensorId>(t), padding));
  }
}

void sort_shares(std::vector<MemoryShare>& shares) {
  std::stable_sort(shares.begin(), shares.end(), [](const MemoryShare& a, const MemoryShare& b) { return a.bytes > b.bytes; });
}

}  // namespace

std::vector<MemoryShare> memory_by_role(const Program& program, const MemoryPlan& plan,
                                        std::span<const std::int64_t> workspace_bytes) {
  std::map<std::string, std::int64_t> by_role;
  visit_live(program, plan, [&](TensorId id, std::int64_t bytes) { by_role[std::string(name_of(program[id].role))] += bytes; });
  if (plan.peak_at >= 0 && !workspace_bytes.empty()) {
    by_role["workspace"] += aligned(workspace_bytes[static_cast<std::size_t>(plan.peak_at)]);
  }
  by_role["fragmentation"] = plan.bytes[0] - plan.live_peak[0];
  std::vector<MemoryShare> shares;
  for (const auto& [role, bytes] : by_role) {
    if (bytes > 0) shares.push_back({role, bytes});
  }
  sort_shares(shares);
  return shares;
}

std::map<std::string, std::vector<std::int64_t>> memory_over_step(const Program& program,
                                                                  std::span<const std::int64_t> workspace_bytes) {
  const std::size_t count = program.instructions.size();
  const std::vector<Lifetime> lives = lifetimes(program);
  const std::int64_t padding = program.padding();
  std::map<std::string, std::vector<std::int64_t>> by_role;  // first as changes from instruction to instruction
  const auto changes_of = [&](Role role) -> std::vector<std::int64_t>& {
    return by_role.try_emplace(std::string(name_of(role)), count + 1, 0).first->second;
  };
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    if (tensor.storage != static_cast<TensorId>(t) || tensor.space != MemorySpace::device) continue;
    const bool persistent = is_persistent(tensor);
    if (!persistent && lives[t].first < 0) continue;
    const std::int64_t bytes = reserved(program, static_cast<TensorId>(t), padding);
    std::vector<std::int64_t>& changes = changes_of(tensor.role);
    changes[persistent ? 0 : static_cast<std::size_t>(lives[t].first)] += bytes;
    changes[persistent ? count : static_cast<std::size_t>(lives[t].last) + 1] -= bytes;
  }
  for (auto& [role, bytes] : by_role) {
    for (std::size_t i = 1; i < count; ++i) bytes[i] += bytes[i - 1];
    bytes.resize(count);
  }
  if (workspace_bytes.empty()) return by_role;
  std::vector<std::int64_t>& scratch = by_role.try_emplace(std::string(name_of(Role::workspace)), count, 0).first->second;
  for (std::size_t i = 0; i < count; ++i) scratch[i] += aligned(workspace_bytes[i]);
  if (std::all_of(scratch.begin(), scratch.end(), [](std::int64_t bytes) { return bytes == 0; }))
    by_role.erase(std::string(name_of(Role::workspace)));
  return by_role;
}

std::vector<MemoryShare> largest_tensors(const Program& program, const MemoryPlan& plan, std::size_t count) {
  std::vector<MemoryShare> shares;
  visit_live(program, plan, [&](TensorId id, std::int64_t bytes) {
    const Tensor& t = program[id];
    shares.push_back(
        {t.name + " " + std::string(name_of(t.dtype)) + program.local(id).text() + " (" + std::string(name_of(t.role)) + ")",
         bytes});
  });
  sort_shares(shares);
  if (shares.size() > count) shares.resize(count);
  return shares;
}

}  // namespace consist
