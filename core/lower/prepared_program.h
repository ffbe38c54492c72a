// A program made ready to run on one rank: kernels, memory plan, waits, launches.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "consist/device.h"
#include "consist/program.h"
#include "consist/transport.h"
#include "core/lower/memory_plan.h"

namespace consist {

/// The communicators of a rank, by the queue on which they are called.
using CommunicatorOfQueue = std::map<Queue, Communicator*>;

/// Use: construct (makes kernels), plan(), then bind() to memory of at least plan().bytes. Device and communicators must outlive
/// it.
class CONSIST_API PreparedProgram {
 public:
  /// `communicators` holds one for each communication queue of the program; missing and null entries are allowed if nothing is to
  /// run (explain). Throws UnavailableError naming the op and dtypes for which the device has no kernel.
  PreparedProgram(Program program, Device& device, const CommunicatorOfQueue& communicators);
  /// For planning alone, without any device: bind() is not to be called, and the scratch of kernels is estimated by the program's
  /// costs (CostModel::scratch_bytes).
  explicit PreparedProgram(Program program);
  ~PreparedProgram();

  /// Plans memory and inserts waits. `states`: see plan_memory.
  const MemoryPlan& plan(const std::map<std::string, std::int64_t>* states = nullptr);
  const MemoryPlan& memory() const noexcept { return plan_; }
  std::span<const std::int64_t> workspace_bytes() const noexcept { return workspace_bytes_; }

  /// Computes every buffer's address and hands the launches to the device.
  void bind(void* device_arena, void* host_arena, bool profile);
  /// From now on the launches of a bound program are timed one by one, or not: they are handed to the device again, if that was
  /// not done before. Between two runs. The former executable() lives on: another thread may be reading its position.
  void set_timing(bool timed);

  const Program& program() const noexcept { return program_; }
  /// Local buffer of a tensor; bound programs only.
  Buffer buffer(TensorId tensor) const;
  Executable& executable() { return *executable_.load(std::memory_order_acquire); }
  /// "adamw model.norm.weight" and the like; for messages about a launch. Programs with a device only.
  const std::string& label(std::int32_t launch) const { return labels_.at(static_cast<std::size_t>(launch)); }
  std::int64_t launches() const noexcept { return static_cast<std::int64_t>(kernel_of_.size()); }

 private:
  void make_kernels(const CommunicatorOfQueue& communicators);
  Buffer buffer_of(TensorId tensor, const Shape& local) const;  ///< without its address
  void hand_over(bool profile);  ///< the launches, to the device
  Kernel* kernel_for(const Instruction& instruction, const CommunicatorOfQueue& communicators);

  Program program_;
  Device* device_;  // null: only to be planned
  std::string device_kind_;
  std::vector<std::unique_ptr<Kernel>> kernels_;              // distinct ones
  std::vector<Kernel*> kernel_of_;                            // by instruction
  std::map<std::string, Kernel*, std::less<>> kernel_cache_;  // by op, types, attributes and queue
  std::vector<std::int64_t> workspace_bytes_;
  std::vector<std::string> labels_;
  MemoryPlan plan_;
  char* arenas_[memory_spaces] = {};
  std::vector<std::unique_ptr<Executable>> executables_;
  Executable* of_timing_[2] = {};  // of these, those of the memory that is bound: not timed, timed
  std::atomic<Executable*> executable_{nullptr};
};

}  // namespace consist
