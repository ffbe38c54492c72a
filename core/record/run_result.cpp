#include "core/record/run_result.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace consist {
namespace {

using Json = nlohmann::ordered_json;

Json known(bool is_known, double value) {
  return is_known ? Json(value) : Json(nullptr);
}

}  // namespace

std::optional<double> RunResult::mfu() const {
  if (!(peak_flops > 0)) return std::nullopt;
  return model_flops / peak_flops;
}

double peak_flops(const DeviceInfo& device, const std::string& precision) {
  if (precision == "fp32") return device.peak_flops_fp32;
  if (precision == "tf32") return device.peak_flops_tf32;
  if (precision == "bf16") return device.peak_flops_bf16;
  return precision == "fp8" ? device.peak_flops_fp8 : 0;
}

std::string result_json(const RunResult& r) {
  Json json{{"planned_bytes", r.planned.device.bytes},
            {"planned_bytes_rank", r.planned.device.rank},
            {"planned_host_bytes", r.planned.host.bytes},
            {"planned_host_bytes_rank", r.planned.host.rank},
            {"measured_peak_bytes", r.measured_peak.bytes},
            {"measured_peak_bytes_rank", r.measured_peak.rank},
            {"steps", r.steps},
            {"tokens_per_second", known(r.tokens_per_second > 0, r.tokens_per_second)},
            {"samples_per_second", known(r.samples_per_second > 0, r.samples_per_second)},
            {"model_flops_per_second", r.model_flops},
            {"peak_flops_per_second", known(r.peak_flops > 0, r.peak_flops)},
            {"mfu", known(r.mfu().has_value(), r.mfu().value_or(0))},
            {"bound_flops_per_second", known(r.bound_flops > 0, r.bound_flops)},
            {"bound_problem", r.bound_problem},
            {"share_of_bound", known(r.bound_flops > 0, r.bound_flops > 0 ? r.model_flops / r.bound_flops : 0)},
            {"final_loss", r.final_loss},
            {"evaluation_loss", known(!std::isnan(r.evaluation_loss), r.evaluation_loss)},
            {"evaluation_sequences", r.evaluation_sequences},
            {"start_seconds", r.start_seconds},
            {"step_seconds", r.step_seconds},
            {"data_seconds", r.data_seconds},
            {"evaluation_seconds", r.evaluation_seconds},
            {"checkpoint_seconds", r.checkpoint_seconds},
            {"total_seconds", r.total_seconds},
            {"snapshots_left_out", r.snapshots_left_out},
            {"ended", known(r.ended > 0, r.ended)},
            {"processors", nullptr}};
  if (r.processors) {
    json["processors"] = {{"own", r.processors->own},
                          {"others", r.processors->others},
                          {"stolen", r.processors->stolen},
                          {"idle", r.processors->idle}};
  }
  return json.dump(2);
}

}  // namespace consist
