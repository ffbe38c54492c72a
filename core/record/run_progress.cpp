#include "core/record/run_progress.h"

namespace consist {
namespace {

constexpr int activity_bits = 4, round_bits = 24;

std::uint64_t packed(Activity activity, std::int64_t step, std::int64_t round) noexcept {
  const std::uint64_t low_round = static_cast<std::uint64_t>(round) & ((std::uint64_t{1} << round_bits) - 1);
  return (static_cast<std::uint64_t>(step) << round_bits | low_round) << activity_bits | static_cast<std::uint64_t>(activity);
}

Progress unpacked(std::uint64_t at) noexcept {
  return {.step = static_cast<std::int64_t>(at >> (activity_bits + round_bits)),
          .activity = static_cast<Activity>(at & ((std::uint64_t{1} << activity_bits) - 1)),
          .round = static_cast<std::int64_t>(at >> activity_bits & ((std::uint64_t{1} << round_bits) - 1))};
}

}  // namespace

RunProgress::RunProgress(Job& job, TrainingState& state, std::int64_t first_step)
    : job_(job), state_(state), at_(packed(Activity::reading, first_step, 0)) {
  job_.set_progress([this] { return text(); });
}

RunProgress::~RunProgress() {
  job_.set_progress({});
}

void RunProgress::begin(Activity activity, std::int64_t step, std::int64_t round) noexcept {
  at_.store(packed(activity, step, round), std::memory_order_release);
}

std::string RunProgress::text() const {
  Progress progress = unpacked(at_.load(std::memory_order_acquire));
  PreparedProgram* const program = progress.activity == Activity::running      ? &state_.step()
                                   : progress.activity == Activity::evaluating ? state_.evaluation()
                                                                               : nullptr;
  if (program == nullptr) return text_of(progress);
  const std::int32_t at = program->executable().position();
  progress.instruction = at;
  return text_of(progress, at < 0 ? "" : program->label(at));
}

}  // namespace consist
