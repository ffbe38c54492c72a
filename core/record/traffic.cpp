#include "core/record/traffic.h"

#include <nlohmann/json.hpp>

#include "core/archive/archived_json.h"

namespace consist {

std::vector<AxisTraffic> traffic(const Mesh& mesh, const ProgramSummary& summary, const Communicators& communicators) {
  std::vector<AxisTraffic> axes;
  for (const AxisSet set : communicators.sets()) {
    AxisTraffic made{.axis = mesh.text(set)};
    for (const CollectiveSummary& c : summary.collectives) {
      if (c.axes == made.axis) made.program_bytes += c.bytes_sent;
    }
    const std::int64_t counted = communicators.bytes_sent(set);
    if (counted > 0 || made.program_bytes == 0) made.counted_bytes = counted;
    axes.push_back(std::move(made));
  }
  return axes;
}

std::string traffic_json(const std::vector<AxisTraffic>& axes, std::int64_t steps) {
  nlohmann::ordered_json json{{"steps", steps}, {"axes", nlohmann::ordered_json::array()}};
  for (const AxisTraffic& axis : axes) {
    json["axes"].push_back({{"axis", axis.axis}, {"program_bytes_per_step", axis.program_bytes}, {"counted_bytes", nullptr}});
    if (axis.counted_bytes) json["axes"].back()["counted_bytes"] = *axis.counted_bytes;
  }
  return json.dump(2);
}

std::optional<SentPerStep> sent_per_step(const std::string& text) {
  const nlohmann::json json = archived_json(text);
  if (!json.is_object() || json.value("steps", 0.0) <= 0) return std::nullopt;
  SentPerStep sent;
  for (const auto& axis : json.value("axes", nlohmann::json::array())) {
    if (const auto counted = axis.find("counted_bytes"); counted != axis.end() && counted->is_number()) {
      sent.bytes += counted->get<double>() / json["steps"].get<double>();
    } else {
      sent.bytes += axis.value("program_bytes_per_step", 0.0);
      sent.counted = false;
    }
  }
  return sent;
}

}  // namespace consist
