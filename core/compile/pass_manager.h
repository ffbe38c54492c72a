// The pass manager: runs passes one behind the other, verifies after each and names the one that broke the program.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "consist/pass.h"
#include "consist/program.h"

namespace consist {

/// Statistics of a pass that has run.
struct PassReport {
  std::string name;
  double seconds = 0;            ///< processor time of the pass
  double verify_seconds = 0;     ///< of the verification behind it
  std::size_t instructions = 0;  ///< of the program afterwards
  bool changed = true;           ///< what has not changed is not verified again
};

/// Is told of the passes of a compilation, in their order, once the program behind each has been verified.
class CONSIST_API PassObserver {
 public:
  virtual ~PassObserver();
  virtual void after(const PassReport& report, const Program& program) = 0;
};

class CONSIST_API PassManager {
 public:
  using Check = void (*)(const Program&);

  /// Adds a pass of the core.
  void add(Pass pass, Check check = nullptr);
  /// Adds a pass that is a call of a plugin's function: "strategy 'ddp'", "schedule".
  void add_call(Pass pass, const std::string& part, std::string_view function, Check check = nullptr);
  /// Adds what a part has added to a list at `point`.
  void add_of_part(const PassList& passes, PassPoint point, const std::string& part);

  /// Runs all passes in the order in which they were added. `check` is applied behind each that was added without one and that
  /// has changed the program, or, without `after_each`, behind the last one alone. Throws what a pass throws, and ProgramError
  /// that names the pass behind which the check fails. `observer` is told of the passes behind which the program is verified.
  void run(Program& program, PassContext& context, Check check, PassObserver* observer = nullptr, bool after_each = true) const;

 private:
  struct Step {
    Pass pass;
    std::string blame;  ///< "strategy 'ddp' left an illegal program in schedule()"
    Check check;
  };
  std::vector<Step> steps_;
};

}  // namespace consist
