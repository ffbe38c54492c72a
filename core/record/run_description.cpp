#include "core/record/run_description.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "consist/host.h"
#include "consist/text.h"
#include "core/base/one_line.h"
#include "core/passes/gather_quantized.h"
#include "core/plan/found_model.h"
#include "core/plan/links.h"

namespace consist {
namespace {

using Json = nlohmann::ordered_json;

/// "Linux 6.1.0-18-amd64 x86_64"
std::string system_text() {
  utsname name{};
  if (::uname(&name) != 0) return {};
  return std::string(name.sysname) + " " + name.release + " " + name.machine;
}

/// Model name of the first processor; empty where the system does not tell.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  }
  return {};
}

std::string rate_text(double rate) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", rate);
  return text;
}

}  // namespace

std::string environment_json(const Job& job, const Device& device, const MachineChoice& machine,
                             const Communicators& communicators, PluginHost& host) {
  const DeviceInfo info = device.info();
  std::map<std::string, std::string> versions = info.versions;
  versions.merge(communicators.versions());
  Json json{{"consist", CONSIST_FINGERPRINT},
            {"host", std::string(job.host())},
            {"system", system_text()},
            {"processor", processor_name()},
            {"usable_cores", usable_cores()},
            {"device", info.name},
            {"device_kind", info.kind},
            {"device_memory_bytes", info.memory_bytes},
            {"device_notes", info.notes},
            {"versions", versions},
            {"planned_for", {{"machine", machine.machine.name}, {"origin", machine.origin}}}};
  for (const PluginFile& file : host.files()) {
    if (file.problem.empty()) json["plugins"][file.kind + "/" + file.name] = file.version;
  }
  return json.dump(2);
}

std::string topology_json(const Plan& plan, const Communicators& communicators) {
  const Layout& layout = plan.layout();
  Json json{{"ranks", plan.config().ranks}, {"axes", Json::array()}};
  for (int axis = 0; axis < layout.mesh.axes(); ++axis) {
    json["axes"].push_back({{"name", layout.mesh.axis(axis).name},
                            {"size", layout.mesh.size_of(axis)},
                            {"strategy", layout.strategy_of(axis).name},
                            {"transport", communicators.transport(axis)},
                            {"asked", plan.transports().asked[static_cast<std::size_t>(axis)]},
                            {"verified_path", communicators.verified_path(axis)}});
  }
  return json.dump(2);
}

std::string program_json(const ProgramSummary& summary, const PlannedMemory& planned) {
  Json json = Json::parse(summary_json(summary));
  json["rank"] = 0;
  json["largest"] = {{"planned_bytes", planned.device.bytes},
                     {"planned_bytes_rank", planned.device.rank},
                     {"planned_host_bytes", planned.host.bytes},
                     {"planned_host_bytes_rank", planned.host.rank}};
  return json.dump(2);
}

std::string nothing_moves_text(const OffloadRequest& request, std::span<const int> none, int ranks) {
  constexpr std::size_t listed = 8;
  std::string who;
  for (const int rank : none.first(std::min(none.size(), listed))) who += (who.empty() ? "" : ", ") + std::to_string(rank);
  if (none.size() > listed) who += " and " + std::to_string(none.size() - listed) + " others";
  const bool all = static_cast<int>(none.size()) == ranks;
  return "--offload-activations " + text_of(request) + " moves nothing on " +
         (all ? "any rank" : (none.size() == 1 ? "rank " : "ranks ") + who) +
         ": a stage of the pipeline has none of these layers, or backward wants what they keep again before it could have gone "
         "to the "
         "host and come back" +
         (all ? "; name earlier layers, or leave the option out" : "");
}

std::string banner(const Plan& plan, const Dataset& dataset, const PlannedMemory& planned, const Communicators& communicators,
                   const ProgramSummary& summary) {
  const RunConfig& config = plan.config();
  const Parts& parts = plan.parts();
  const Layout& layout = plan.layout();
  const DTypes d = parts.precision->dtypes();
  const ModelSizes sizes = parts.architecture->sizes();
  std::string text =
      model_text(config) + ": " + si_text(static_cast<double>(sizes.parameters)) + " parameters, " + dataset.describe();
  text += "\n" + text_of(config.strategies) + " on " + std::to_string(config.ranks) + (config.ranks == 1 ? " rank" : " ranks");
  for (int axis = 0; axis < layout.mesh.axes(); ++axis) {
    text += ", " + layout.mesh.axis(axis).name + "=" + std::to_string(layout.mesh.size_of(axis)) + " over " +
            one_line(communicators.verified_path(axis));
  }
  const std::vector<AxisLinks> links = links_of(plan);
  if (std::any_of(links.begin(), links.end(), [](const AxisLinks& of_axis) { return of_axis.is_automatic; }))
    text += "\ntransports: " + text_of(links);
  text += "\n" + config.precision + ": parameters and activations " + std::string(name_of(d.parameter)) + ", gradients " +
          std::string(name_of(d.gradient)) + ", masters " + (d.master ? std::string(name_of(*d.master)) : "none") + ", moments " +
          std::string(name_of(d.moment)) + "; " + parts.optimizers(config).describe() + "; learning rate " +
          rate_text(config.learning_rate) + ", " + parts.schedule->describe();
  if (parts.adapted) {
    const bool is_random = parts.model_folder.empty() || config.from_scratch;
    text += "\nadapter: " + parts.adapted->adapter().describe() + (is_random ? ", beside random weights" : "");
  }
  if (config.frozen_weights.any())
    text += "\nfrozen weights of linears: " + text_of(config.frozen_weights) +
            ", blocks of codes that products' inputs are decoded from";
  if (parts.loss) {
    text += "\ntrained on: " + parts.loss->loss().describe();
    for (const FoundFrozen& model : parts.loss->frozen()) {
      const std::string from = model.is_trained_model ? "the trained model's at the start"
                               : model.folder.empty() ? "random"
                                                      : model.folder;
      text += "\nfrozen model '" + model.name + "': " + si_text(static_cast<double>(model.architecture->sizes().parameters)) +
              " parameters, weights: " + from;
    }
  }
  if (summary.fp8_flops > 0)
    text += "\nmatrix products of a step " + si_text(summary.flops) + "FLOP per rank, " + fp8_text(summary);
  if (!summary.parts.empty()) text += "\n" + summary.parts;
  text += "\n" + one_line(plan.target().device->info().name);
  for (const std::string& note : config.notes) text += "\n" + note;
  if (summary.gathers_nothing_quantized) text += "\n" + std::string(no_quantized_gathers);
  const std::int64_t sequences = config.batch * config.accumulation * layout.batch_ranks();
  text += "\nbatch " + std::to_string(config.batch) + " x accumulation " + std::to_string(config.accumulation) + " x " +
          std::to_string(layout.batch_ranks()) + " = " + std::to_string(sequences) + " sequences of " +
          std::to_string(config.sequence) + ": " + std::to_string(sequences * config.sequence) +
          " tokens a step; planned memory " + text_of(planned.device);
  if (planned.host.bytes > 0) text += ", pinned on the host " + text_of(planned.host);
  return text;
}

}  // namespace consist
