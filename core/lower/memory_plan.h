// The memory plan: the address of every tensor, known before anything is allocated. The planned memory is the memory: one arena
// per space.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "consist/program.h"

namespace consist {

inline constexpr int memory_spaces = 2;

struct MemoryPlan {
  std::vector<std::int64_t> address;                     ///< by tensor: bytes from the start of its space's arena; -1: never used
  std::vector<std::int64_t> workspace;                   ///< by instruction: address of its scratch in device memory; -1: none
  std::array<std::int64_t, memory_spaces> bytes{};       ///< size of each arena
  std::array<std::int64_t, memory_spaces> persistent{};  ///< of that: states, inputs and metrics, at the arena's start
  /// Most bytes live at once; `bytes` exceeds it by what fragmentation costs.
  std::array<std::int64_t, memory_spaces> live_peak{};
  InstructionId peak_at = -1;  ///< where device memory is fullest
};

/// Plans `program`, in program order, for the rank that runs it. `workspace_bytes` has one entry per instruction (or none at
/// all). `states` gives addresses that states of that name must keep (another program's plan in the same arena); it may be null.
/// Storages are reused as soon as their last reader has been issued; the pass `waits` makes that safe between queues.
CONSIST_API MemoryPlan plan_memory(const Program& program, std::span<const std::int64_t> workspace_bytes,
                                   const std::map<std::string, std::int64_t>* states = nullptr);

/// Addresses of the states of a planned program, by name.
CONSIST_API std::map<std::string, std::int64_t> state_addresses(const Program& program, const MemoryPlan& plan);

struct MemoryShare {
  std::string what;
  std::int64_t bytes = 0;
};
/// Device memory in use at its peak, by role, largest first; workspaces included.
CONSIST_API std::vector<MemoryShare> memory_by_role(const Program& program, const MemoryPlan& plan,
                                                    std::span<const std::int64_t> workspace_bytes);

/// Bytes of device memory in use while each instruction runs, by role and instruction. Workspaces are included, the arena's
/// fragmentation is not. Roles that never hold anything are left out.
CONSIST_API std::map<std::string, std::vector<std::int64_t>> memory_over_step(const Program& program,
                                                                              std::span<const std::int64_t> workspace_bytes);
/// The `count` largest tensors that live there then, by name.
CONSIST_API std::vector<MemoryShare> largest_tensors(const Program& program, const MemoryPlan& plan, std::size_t count);

}  // namespace consist
