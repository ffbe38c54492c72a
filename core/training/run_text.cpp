#include "core/training/run_text.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "consist/text.h"
#include "core/base/quantity_text.h"
#include "core/config/price.h"
#include "core/plugin/option_roles.h"
#include "core/record/metrics.h"
#include "core/record/run_result.h"

namespace consist {
namespace {

/// States how long rank 0 waited for data; empty if that was at most 1% of the time or at most 0.1 s.
std::string data_wait_text(const RunResult& result) {
  constexpr double worth_a_word = 0.01, least_seconds = 0.1;
  const double total = result.step_seconds + result.data_seconds;
  if (result.data_seconds <= std::max(worth_a_word * total, least_seconds)) return {};
  return "between steps rank 0 waited " + fixed_text(result.data_seconds, 1) + " s for data, " +
         percent_text(result.data_seconds / total, 1) + " of the time; tokens/s are without that wait\n";
}

}  // namespace

void print_result(const RunEvents& events) {
  const Steady steady = steady_state(events.seconds());
  if (steady.steps == 0) return;
  const double rate = static_cast<double>(events.tokens()) / steady.median_seconds;
  const std::string share = events.result.bound_flops > 0
                                ? ", " + percent_text(events.result.model_flops / events.result.bound_flops) + " of the bound"
                                : "";
  const std::string mfu = events.result.mfu() ? ", MFU " + percent_text(*events.result.mfu(), 1) + " of " +
                                                    si_text(events.result.peak_flops) + "FLOP/s"
                                              : "";
  std::printf(
      "loss %.5f  %s tokens/s (median of %lld steps after %lld of warm-up; %s to %s)  step %.1f ms  %sFLOP/s per rank%s%s  "
      "memory "
      "%s\n",
      events.result.final_loss, si_text(rate).c_str(), static_cast<long long>(steady.steps),
      static_cast<long long>(steady.first_step - 1), si_text(static_cast<double>(events.tokens()) / steady.high_seconds).c_str(),
      si_text(static_cast<double>(events.tokens()) / steady.low_seconds).c_str(), steady.median_seconds * 1e3,
      si_text(events.result.model_flops).c_str(), mfu.c_str(), share.c_str(), text_of(events.result.measured_peak).c_str());
  if (!events.result.bound_problem.empty()) std::printf("no bound: %s\n", printable(events.result.bound_problem).c_str());
  std::fputs(data_wait_text(events.result).c_str(), stdout);
}

std::string cost_text(const RunConfig& config, const MachineChoice& machine, const std::string& device, double seconds) {
  constexpr double seconds_of_hour = 3600;
  if (config.price.empty()) return {};
  const std::optional<double> price =
      Price(config.price).of(machine.origin == "the device's" ? machine.machine.name : "", device);
  if (!price) return "no cost: --price " + config.price + " has none for " + device + "\n";
  const double cost = *price * config.ranks * seconds / seconds_of_hour;
  return "cost " + fixed_text(cost, cost < 1 ? 4 : 2) + ": " + std::to_string(config.ranks) +
         (config.ranks == 1 ? " device for " : " devices for ") + duration_text(seconds) + " at " + fixed_text(*price, 2) +
         " an hour\n";
}

std::string unkept_text(const RunConfig& config) {
  if (!config.checkpoint.empty() || !config.export_folder.empty()) return {};
  return "the trained weights will not be kept: --checkpoint FOLDER keeps them, --export FOLDER writes the model in Hugging "
         "Face's format";
}

void print_written(const RunConfig& config, PluginHost& host, std::int64_t step, bool exported) {
  std::string text;
  const auto add = [&](const std::string& what, const std::string& where) {
    if (!where.empty()) text += "written: " + what + " " + where + "\n";
  };
  add("checkpoint of step " + std::to_string(step) + " in", config.checkpoint);
  if (exported) add(config.adapter == no_adapter || config.export_merged ? "the model in" : "the adapter in", config.export_folder);
  add("archive", config.archive);
  add("trace", config.trace);
  for (const std::string& observer : config.observers) {
    const auto options = config.plugin_options.find(observer);
    if (options == config.plugin_options.end()) continue;
    for (const auto& [name, value] : options->second) {
      const std::string option = observer + "." + name;
      if (role_of(option, host) == OptionRole::results) add("--" + option, value);
    }
  }
  if (config.checkpoint.empty() && (config.export_folder.empty() || !exported))
    text += "The trained weights were not kept: the run had no --checkpoint FOLDER" +
            std::string(config.export_folder.empty() ? " and no --export FOLDER\n" : ", and it did not come to its --export\n");
  std::fputs(printable(text).c_str(), stdout);
}

std::string restart_text(const RestartReason& reason, std::int64_t step, const std::string& from, std::optional<double> lost) {
  const int left = reason.most - reason.restart;
  return "restart " + std::to_string(reason.restart) + " of " + std::to_string(reason.most) + ": " + reason.what +
         "; the run goes on after step " + std::to_string(step) + " from " + from +
         (lost ? ", " + fixed_text(*lost, 1) + " s are lost" : "") + "; " +
         (left == 0   ? "no restart is"
          : left == 1 ? "1 restart is"
                      : std::to_string(left) + " restarts are") +
         " left";
}

std::string restart_event(const RestartReason& reason, std::int64_t step, const std::string& from, std::optional<double> lost) {
  constexpr std::size_t most = 160, most_event = 1000;  // bytes of a path; of an event, which has 1,024
  nlohmann::ordered_json event = {{"restart", reason.restart}, {"of", reason.most}, {"rank", reason.rank},
                                  {"failed_in", reason.step},  {"step", step},      {"from", from.substr(0, most)}};
  event["seconds_lost"] = lost ? nlohmann::ordered_json(*lost) : nlohmann::ordered_json(nullptr);
  for (std::string what = reason.what;; what.resize(what.size() - std::min<std::size_t>(what.size(), 50))) {
    event["what"] = what;
    std::string text = event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (text.size() <= most_event || what.empty()) return text;
  }
}

std::string nodes_text(const NodeChange& change, std::int64_t step) {
  const auto part = [](const std::string& nodes, const char* one, const char* several) {
    const bool plural = nodes.find(',') != std::string::npos;
    return nodes.empty() ? std::string() : (plural ? "nodes " : "node ") + nodes + (plural ? several : one) + "; ";
  };
  return part(change.left_out, " is left out", " are left out") + part(change.came, " has come", " have come") +
         "the run goes on after step " + std::to_string(step) + " with " + std::to_string(change.ranks) +
         (change.ranks == 1 ? " rank" : " ranks") + " instead of " + std::to_string(change.ranks_before);
}

std::string nodes_event(const NodeChange& change, std::int64_t step) {
  const nlohmann::ordered_json event = {{"step", step},
                                        {"left_out", change.left_out},
                                        {"came", change.came},
                                        {"ranks_before", change.ranks_before},
                                        {"ranks", change.ranks}};
  return event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(0, 1000);
}

std::string text_of_parts(const RunData& data, const Plan& plan, std::int64_t step) {
  if (data.mixture == nullptr) return "";
  const RunConfig& config = plan.config();
  return "steps 1 to " + std::to_string(step) + ": " +
         data.mixture->text_of_first(step * config.batch * config.accumulation * plan.layout().batch_ranks());
}

void print_early_end(const RunConfig& config, std::int64_t step, const std::string& reason) {
  if (reason.empty()) return;
  std::printf("ended after step %lld of %lld: %s\n", static_cast<long long>(step), static_cast<long long>(config.steps),
              printable(reason).c_str());
}

void print_stop(const RunConfig& config, std::int64_t step) {
  const std::string text =
      config.checkpoint.empty()
          ? "stopped after step " + std::to_string(step) + "; without --checkpoint, nothing of the model was saved"
          : "stopped after step " + std::to_string(step) + ", of which there is a checkpoint in " + config.checkpoint +
                "; to go on from it, give the same command with --resume";
  std::fprintf(stderr, "%s\n", printable(text).c_str());
}

}  // namespace consist
