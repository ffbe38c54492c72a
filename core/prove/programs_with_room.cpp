#include "core/prove/programs_with_room.h"

#include <utility>

namespace consist::prove {

constexpr double most_room = 64;

ProgramsWithRoom::ProgramsWithRoom(Plan plan, std::int64_t workspace)
    : plan_(std::move(plan)), workspace_(workspace), programs_(interpreter::compile(plan_, workspace)) {}

interpreter::Outcome ProgramsWithRoom::run(const std::function<interpreter::Outcome(const interpreter::RankPrograms&)>& steps) {
  for (double room = 2 * plan_.room();; room *= 2) {
    try {
      return steps(*programs_);
    } catch (const interpreter::NoRoom&) {
      if (room > most_room) throw;
      plan_ = plan_.with_room(room);
      programs_ = interpreter::compile(plan_, workspace_);
    }
  }
}

}  // namespace consist::prove
