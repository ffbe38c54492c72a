#include "core/compile/pass_manager.h"

#include <time.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "consist/error.h"
#include "core/program/content.h"

namespace consist {
namespace {

/// Processor time of this thread, in seconds: what else runs on the machine does not count.
double thread_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

std::string_view name_of(PassPoint point) noexcept {
  constexpr std::array<std::string_view, pass_points> names{"forward", "micro_batch", "before_schedule", "after_schedule",
                                                            "finished"};
  return names.at(static_cast<std::size_t>(point));
}

void PassList::add(PassPoint point, Pass pass) {
  if (pass.name.empty() || !pass.run)
    throw UsageError("a pass at point '" + std::string(name_of(point)) + "' has no " + (pass.name.empty() ? "name" : "function"));
  passes_.at(static_cast<std::size_t>(point)).push_back(std::move(pass));
}

PassObserver::~PassObserver() = default;

void PassManager::add(Pass pass, Check check) {
  std::string blame = "pass '" + pass.name + "' left an illegal program";
  steps_.push_back({std::move(pass), std::move(blame), check});
}

void PassManager::add_call(Pass pass, const std::string& part, std::string_view function, Check check) {
  steps_.push_back({std::move(pass), part + " left an illegal program in " + std::string(function) + "()", check});
}

void PassManager::add_of_part(const PassList& passes, PassPoint point, const std::string& part) {
  for (const Pass& pass : passes.at(point))
    steps_.push_back({pass, "pass '" + pass.name + "' of " + part + " left an illegal program", nullptr});
}

void PassManager::run(Program& program, PassContext& context, Check check, PassObserver* observer, bool after_each) const {
  std::optional<std::uint64_t> content;  // of the program as it was verified
  for (const Step& step : steps_) {
    PassReport report{.name = step.pass.name};
    const double start = thread_seconds();
    step.pass.run(program, context);
    const double done = thread_seconds();
    report.seconds = done - start;
    if (!after_each && &step != &steps_.back()) continue;
    // Two kinds of check do not vouch for one another.
    std::optional<std::uint64_t> known;
    if (after_each && step.check == nullptr) known = std::exchange(content, content_of(program));
    report.changed = !known || known != content;
    if (step.check != nullptr) content.reset();
    try {
      if (report.changed) (step.check == nullptr ? check : step.check)(program);
    } catch (const ProgramError& error) {
      throw ProgramError(step.blame + ": " + error.what());
    }
    report.verify_seconds = thread_seconds() - done;
    report.instructions = program.instructions.size();
    if (observer != nullptr) observer->after(report, program);
  }
}

}  // namespace consist
