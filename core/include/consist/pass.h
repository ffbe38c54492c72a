// Passes: named transformations from program to program. The core's own and those of plugins run one after the other. After each
// the program is verified, and can be printed (`consist explain --print-after NAME`, `--pass-times`).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "consist/export.h"
#include "consist/precision.h"
#include "consist/program.h"

namespace consist {

/// Values that are the same for all passes of a program. Lives as long as they run.
struct PassContext {
  DTypes dtypes;            ///< of the run's precision
  int micro_batches = 1;    ///< of a step
  bool evaluation = false;  ///< forward of one micro-batch, without gradients and optimizer
};

/// Where passes of plugins run.
enum class PassPoint : std::uint8_t {
  forward,          ///< forward of one micro-batch, placed on the mesh, in the precision's dtypes; differentiated afterwards
  micro_batch,      ///< one micro-batch of this rank: forward and backward, in an evaluation forward alone
  before_schedule,  ///< all micro-batches, gradients accumulated and not yet reduced. Not in an evaluation
  after_schedule,   ///< the same after every strategy's schedule(): with reductions. Not in an evaluation
  finished,         ///< the whole program, optimizer included: before memory is planned
};
inline constexpr std::size_t pass_points = 5;
/// "forward", "micro_batch", "before_schedule", "after_schedule", "finished".
CONSIST_API std::string_view name_of(PassPoint point) noexcept;

struct Pass {
  /// As messages and --print-after name it: "my-strategy.merge_casts", the plugin's name first. Not empty.
  std::string name;
  /// Changes the program. The program is verified before and after it (verify(), docs/plugins.md); a rule that the pass breaks is
  /// an error with its name. REQUIRES: it does the same on every rank for the same program (no clocks, no random numbers), and
  /// inserted instructions carry its name in Tag::inserted_by. THREADS: several at a time, each with a program of its own.
  /// ERRORS: UsageError for a request of the user that cannot be met.
  std::function<void(Program&, PassContext&)> run;
};

/// The passes that plugins add, by point. At one point they run in the order in which they were added: strategies in the order of
/// the mesh's axes, then the precision, then the optimizer.
class CONSIST_API PassList {
 public:
  /// Throws UsageError for a pass without a name or without a function.
  void add(PassPoint point, Pass pass);
  const std::vector<Pass>& at(PassPoint point) const { return passes_.at(static_cast<std::size_t>(point)); }

 private:
  std::array<std::vector<Pass>, pass_points> passes_;
};

}  // namespace consist
