// The programs of a plan, compiled again as the trainer does where rows of tokens have no room at their experts: small models
// route less evenly.
#pragma once

#include <functional>
#include <memory>

#include "core/interpreter/step_run.h"
#include "core/plan/plan.h"

namespace consist::prove {

class ProgramsWithRoom {
 public:
  /// Each kernel has `workspace` bytes (interpreter::planned). Throws what the compiler throws.
  ProgramsWithRoom(Plan plan, std::int64_t workspace);

  interpreter::RankPrograms& operator*() const { return *programs_; }
  interpreter::RankPrograms* operator->() const { return programs_.get(); }

  /// The outcome of `steps`, which are repeated with more room as long as they throw NoRoom, up to 64 times the room.
  interpreter::Outcome run(const std::function<interpreter::Outcome(const interpreter::RankPrograms&)>& steps);

 private:
  Plan plan_;
  std::int64_t workspace_;
  std::unique_ptr<interpreter::RankPrograms> programs_;
};

}  // namespace consist::prove
