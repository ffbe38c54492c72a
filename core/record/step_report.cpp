#include "core/record/step_report.h"

namespace consist {

TrainerEvents::~TrainerEvents() = default;
bool TrainerEvents::make_room(std::int64_t /*step*/, double /*missing*/) {
  return false;
}

}  // namespace consist
