#include "launch/search/advise/run_adviser.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "consist/error.h"
#include "consist/host.h"
#include "launch/predict/remedies.h"
#include "launch/search/advise/advice.h"

namespace consist::launch {
namespace {

constexpr double most_seconds = 1;  // at a run's start
constexpr std::size_t most_notes = 2;
constexpr double unknown_error_gain = 1.1;
constexpr double measuring_seconds = 0.5;  // with_measured_bf16() takes half of them
constexpr double refusal_seconds = 5;      // nothing else is waited for
constexpr std::size_t most_remedies = 4;
constexpr int most_threads = 4;  // other ranks of the host are at their own start

int threads() {
  return std::min(usable_cores(), most_threads);
}

/// The capacity, and the bytes of the device's kernels beyond the base's prediction, which alternatives are assumed to need, too.
Room room_for(const RunMemory& memory, const Prediction& base) {
  return {memory.capacity, std::max<std::int64_t>(memory.planned - base.most_bytes(), 0)};
}

/// bf16's peak set to that of fp32 times what this device's products gain. Data sheets say what instructions could do that not
/// every processor has.
std::shared_ptr<const Machine> with_measured_bf16(const Machine& machine, const Plan& plan) {
  Device& device = *plan.target().device;
  const ModelSizes sizes = plan.parts().architecture->sizes();
  constexpr std::int64_t longest = 2048, rows = 512;  // fractions of a second on a processor
  const std::int64_t m = std::min(rows, plan.config().batch * plan.config().sequence);
  const std::int64_t n = std::min(longest, sizes.ffn), k = std::min(longest, sizes.hidden);
  auto measured = std::make_shared<Machine>(machine);
  const double fp32 = device.measure_matmul(DType::f32, m, n, k), bf16 = device.measure_matmul(DType::bf16, m, n, k);
  measured->device.peak_bf16 = {machine.device.peak_fp32.value * bf16 / fp32, FigureSource::measured_here};
  return measured;
}

}  // namespace

std::vector<std::string> RunAdviser::faster(const Plan& plan, const RunMemory& memory, double compile_seconds) {
  // The base and a few alternatives must be planned to say anything.
  if (4 * compile_seconds > most_seconds * threads()) return {};
  try {
    std::optional<Plan> simulated(without_device(plan));
    Prediction base = predict(*simulated, threads());
    const double run_seconds = base.time.seconds * static_cast<double>(plan.config().steps);
    AdviceRequest request{.room = room_for(memory, base), .limits = {std::min(most_seconds, run_seconds / 10), threads()}};
    if (!base.time.error.value) {
      request.least_gain = unknown_error_gain;
      if (plan.parts().precision->peak() == "fp32" && plan.config().machine.empty()) {
        if (request.limits.seconds < measuring_seconds) return {};
        simulated.emplace(plan.for_target({nullptr, with_measured_bf16(*plan.target().machine, plan), false}));
        base = predict(*simulated, threads());
      }
    }
    std::vector<std::string> notes;
    for (const Advice& advice : advise(*simulated, host_, base, request)) {
      if (notes.size() == most_notes) break;
      notes.push_back(text_of(advice) + " (simulated for " + simulated->target().machine->name + ")");
    }
    return notes;
  } catch (const Error&) {
    return {};  // advice is no reason to fail
  }
}

std::string RunAdviser::fitting(const Plan& plan, const RunMemory& memory) {
  try {
    const Prediction base = predict(without_device(plan), threads());
    std::vector<Remedy> remedies = remedies_for(plan, host_, room_for(memory, base), {refusal_seconds, threads()});
    if (remedies.size() > most_remedies) remedies.resize(most_remedies);
    return text_of(remedies, base);
  } catch (const Error&) {
    return {};  // the refusal is the error to report
  }
}

}  // namespace consist::launch
