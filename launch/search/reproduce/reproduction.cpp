#include "launch/search/reproduce/reproduction.h"

#include <algorithm>

#include "consist/error.h"
#include "consist/host.h"
#include "consist/op.h"
#include "consist/text.h"
#include "core/base/quantity_text.h"
#include "core/plan/machine_choice.h"
#include "core/record/metrics.h"

namespace consist::launch {
namespace {

bool is_of_peak(DType dtype, std::string_view peak) {
  if (peak == "fp8") return dtype == DType::e4m3 || dtype == DType::e5m2;
  return dtype == (peak == "bf16" ? DType::bf16 : DType::f32);
}

/// The highest share of the peak that the machine has for a product of the precision: of measured times, else as the file states
/// it.
double best_share(const DeviceRates& device, std::string_view peak_name, double peak) {
  double best = 0;
  for (const DeviceRates::OpTimes& of_op : device.times) {
    if (of_op.depth != 0 || !is_of_peak(of_op.dtype, peak_name)) continue;
    for (const DeviceRates::OpTimes::Point& point : of_op.points) best = std::max(best, point.flops / point.seconds / peak);
  }
  if (best > 0) return best;
  for (const DeviceRates::Reached& reached : device.reached) {
    if (!reached.op.starts_with("attention") && (reached.dtype == "*" || reached.dtype == peak_name))
      best = std::max(best, reached.share.value * device.sustained_clock.value);
  }
  return best;
}

/// FLOPs of products on the compute queue, the mean of the stages, as StepTime's seconds are.
double product_flops(const std::vector<PlannedRank>& ranks) {
  double sum = 0;
  for (const Program* program : programs_of(ranks)) {
    for (const Instruction& i : program->instructions) {
      if (i.queue == Queue::compute() && i.op->touches_memory() && work_of(*program, i) == Work::products)
        sum += i.op->cost(*program, i).flops;
    }
  }
  return sum / static_cast<double>(ranks.size());
}

/// The error by those kinds of the step of which steps were measured.
std::optional<double> error_of_known(const ErrorBar& bar) {
  StepErrors known;
  std::vector<std::string> kinds;
  for (const StepError& kind : bar.kinds) {
    if (kind.steps < least_measured_steps) continue;
    known.push_back(kind);
    kinds.push_back(kind.kind);
  }
  const bool has_device = std::find(kinds.begin(), kinds.end(), one_device) != kinds.end();
  return has_device ? error_bar(known, kinds).value : std::nullopt;
}

std::vector<MissingPart> parts_of(const StepTime& time, double rate) {
  std::vector<MissingPart> parts;
  const auto add = [&](const std::string& name, double seconds) {
    if (seconds > 0.001 * time.seconds) parts.push_back({name, seconds, rate * time.seconds / (time.seconds - seconds)});
  };
  for (const auto& [axis, seconds] : time.communication) add("exposed communication (" + axis + ")", seconds);
  add("bubble of the pipeline", time.bubble);
  add("copies from and to the host", time.copies);
  std::sort(parts.begin(), parts.end(), [](const MissingPart& a, const MissingPart& b) { return a.seconds > b.seconds; });
  return parts;
}

Term power_term(const Plan& plan) {
  const DeviceRates& device = plan.target().machine->device;
  const Power power = power_named(plan.config().machine);
  const std::string limit = power.limit.value > 0 ? "a power limit of " + fixed_text(power.limit.value, 0) + " W"
                                                  : "a power limit that its file does not know";
  const std::string clock = device.throttling.lag.value > 0 ? "the clock follows the load as measured there"
                                                            : "the clock of long steps, as the file's shares of the peak have it";
  return {"clock and power", plan.target().machine->name + ", " + limit + "; " + clock, "machine"};
}

std::vector<Term> contract_of(const Plan& plan, const Prediction& p, const ModelSizes& sizes, double flops) {
  const RunConfig& c = plan.config();
  std::vector<Term> terms{
      {"FLOPs",
       si_text(flops) +
           "FLOP a token, forward and backward: causal attention counted once, the LM head included, what is computed "
           "again left out",
       "assumed"},
      {"batch",
       std::to_string(c.global_batch) + " sequences of " + std::to_string(c.sequence) + " tokens a step, micro-batches of " +
           std::to_string(c.batch) + " by " + std::to_string(c.accumulation) + " on each rank of the batch",
       "recipe"},
      {"data",
       "sequences are full, and attention sees all of them: padding counts tokens that are none, packed documents leave "
       "attention out",
       "assumed"}};
  if (sizes.experts > 0)
    terms.push_back({"experts", "balanced: each gets as many tokens as another, none is dropped", "assumed"});
  terms.push_back(power_term(plan));
  if (!p.links.empty()) terms.push_back({"network", text_of(p.links), "machine"});
  terms.push_back({"step", "the step alone: no loading of data, logging, evaluation or checkpoint", "assumed"});
  terms.push_back({"versions",
                   "Consist's programs and kernels; the container, driver and libraries of the published run are not in its file",
                   "assumed"});
  return terms;
}

double rate_of(const Published& published, const RunConfig& config, double flops) {
  if (published.unit == Published::Unit::tokens) return published.value;
  if (published.unit == Published::Unit::flops) return published.value / flops;
  return static_cast<double>(config.global_batch * config.sequence) / published.value / config.ranks;
}

void compare_products(const Plan& plan, double flops, Reproduction& r) {
  r.peak = peak_of(plan);
  if (r.peak <= 0) return;
  const double seconds = r.prediction.time.of(Work::products);
  const double others = r.prediction.time.seconds - seconds;
  const double left = r.prediction.time.seconds * r.predicted / r.rate - others;
  if (seconds > 0) r.products_share = flops / seconds / r.peak;
  if (left > 0) r.needed_share = flops / left / r.peak;
  r.best_share = best_share(plan.target().machine->device, plan.parts().precision->peak(), r.peak);
}

std::size_t counting_named(const std::vector<Counting>& countings, const std::string& name) {
  for (std::size_t n = 0; n < countings.size(); ++n) {
    if (countings[n].name == name) return n;
  }
  throw UsageError("--counting " + name + " is no way to count FLOPs; there are causal, full, causal-body and parameters");
}

}  // namespace

Outcome Reproduction::outcome() const {
  if (!prediction.fits()) return Outcome::not_explained;
  if (!error) return Outcome::unclear;
  if (rate >= low() && rate <= high()) return Outcome::explained;
  return error_is_whole ? Outcome::not_explained : Outcome::unclear;
}

Reproduction reproduce(const Plan& plan, PluginHost& host, const Published& published, const std::string& counting,
                       double advise_seconds) {
  const RunConfig& config = plan.config();
  const Architecture& architecture = *plan.parts().architecture;
  const ModelSizes sizes = architecture.sizes();
  Reproduction r{.published = published};
  const double trained = trained_flops_per_token(architecture, config.sequence, config.freeze);
  r.countings = countings_of(sizes, config.sequence, trained / model_flops_per_token(sizes, config.sequence));
  r.counting = counting_named(r.countings, counting);

  const std::vector<PlannedRank> ranks = plan.ranks(0, usable_cores(), false);
  r.prediction = predict(plan, ranks, simulate(ranks));
  const StepTime& time = r.prediction.time;
  r.predicted = r.prediction.tokens_per_second / config.ranks;
  r.rate = rate_of(published, config, r.countings[r.counting].flops);
  r.error_is_whole = time.error.value.has_value();
  r.error = r.error_is_whole ? time.error.value : error_of_known(time.error);
  r.contract = contract_of(plan, r.prediction, sizes, trained);
  r.parts = parts_of(time, r.predicted);
  double waiting = 0;
  for (const MissingPart& part : r.parts) waiting += part.seconds;
  r.without_waiting = r.predicted * time.seconds / (time.seconds - waiting);
  compare_products(plan, product_flops(ranks), r);

  if (r.outcome() == Outcome::explained || r.gap() <= 0 || !r.prediction.fits()) return r;
  const AdviceRequest request{.room = room_of(*plan.target().machine),
                              .limits = {.seconds = advise_seconds, .threads = usable_cores()}};
  r.advice = advise(plan, host, r.prediction, request);
  r.together = together(plan, host, r.prediction, r.advice, request);
  return r;
}

std::string_view name_of(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::explained:
      return "explained";
    case Outcome::not_explained:
      return "not explained";
    case Outcome::unclear:
      break;
  }
  return "cannot be told";
}

}  // namespace consist::launch
