#include "core/cost/link_file.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "consist/error.h"
#include "consist/json_input.h"
#include "core/cost/file_object.h"

namespace consist {
namespace {

using Json = nlohmann::ordered_json;

LinkRates::Curve curve_from(FileObject object) {
  LinkRates::Curve curve{.op = object.text("op"),
                         .members = object.whole("members", 2),
                         .latency = object.number("latency", 0),
                         .source = object.source()};
  double bytes = 0, seconds = curve.latency;
  for (const nlohmann::json& json : object.list("rates")) {
    const std::string where = item(object.name("rates"), curve.rates.size());
    if (!json.is_array() || json.size() != 2 || !json[0].is_number() || !json[1].is_number())
      throw DataError(where + " must be a pair of bytes and bytes per second, not " + shown(json));
    const LinkRates::Point point{json[0].get<double>(), json[1].get<double>()};
    if (!is_figure(point.bytes) || !is_figure(point.rate))
      throw DataError(where + " is " + shown(json) + "; bytes and bytes per second are " + figure_bounds);
    if (!(point.bytes > bytes) || !(point.rate > 0))
      throw DataError(where + " must have more bytes than the one before it, and a rate above 0, not " + shown(json));
    if (point.bytes / point.rate < seconds)
      throw DataError(where + " takes less time than " + (bytes > 0 ? "the one before it" : "an empty message") + ": " +
                      shown(json));
    bytes = point.bytes;
    seconds = point.bytes / point.rate;
    curve.rates.push_back(point);
  }
  if (curve.rates.empty()) throw DataError(object.name("rates") + " is empty");
  object.finish();
  return curve;
}

/// Links of a transport: an object, or which of the machine's they are.
LinkRates links_of_transport(FileObject& transport, const char* key, const Machine& machine) {
  const nlohmann::json& value = transport.at(key);
  if (!value.is_string()) return links_from(FileObject(value, transport.name(key)));
  const std::string same = value.get<std::string>();
  if (same != "node" && same != "network")
    throw DataError(transport.name(key) + " is " + shown(value) +
                    "; it must be an object of curves, or \"node\" or \"network\": the machine's links of that key");
  return same == "node" ? machine.node : machine.network;
}

}  // namespace

LinkRates links_from(FileObject object) {
  LinkRates links;
  bool everything = false;
  for (const nlohmann::json& json : object.list("curves")) {
    links.curves.push_back(curve_from(FileObject(json, item(object.name("curves"), links.curves.size()))));
    everything = everything || links.curves.back().op == "*";
  }
  if (!everything) throw DataError(object.name("curves") + " must have a curve of op \"*\", for all that are not named");
  links.beside_compute = object.share("beside_compute");
  if (object.has("compute_beside")) links.compute_beside = object.share("compute_beside");
  object.finish();
  return links;
}

std::vector<TransportLinks> transports_from(FileObject object, const Machine& machine) {
  std::vector<TransportLinks> all;
  for (const std::string& name : object.keys()) {
    FileObject transport = object.object(name.c_str());
    TransportLinks links{name, {}, {}};
    if (transport.has("node")) links.node = links_of_transport(transport, "node", machine);
    if (transport.has("network")) links.network = links_of_transport(transport, "network", machine);
    if (!links.node && !links.network)
      throw DataError(object.name(name.c_str()) +
                      " must have links: the key \"node\" (within a node), \"network\" (to others) or both");
    transport.finish();
    all.push_back(std::move(links));
  }
  object.finish();
  return all;
}

Json json_of(const LinkRates& links) {
  Json curves = Json::array();
  for (const LinkRates::Curve& curve : links.curves) {
    Json rates = Json::array();
    for (const LinkRates::Point& point : curve.rates) rates.push_back({point.bytes, point.rate});
    curves.push_back({{"op", curve.op},
                      {"members", curve.members},
                      {"latency", curve.latency},
                      {"rates", rates},
                      {"source", name_of(curve.source)}});
  }
  return {
      {"curves", curves}, {"beside_compute", json_of(links.beside_compute)}, {"compute_beside", json_of(links.compute_beside)}};
}

Json json_of(const std::vector<TransportLinks>& transports) {
  Json all = Json::object();
  for (const TransportLinks& links : transports) {
    Json& json = all[links.transport];
    if (links.node) json["node"] = json_of(*links.node);
    if (links.network) json["network"] = json_of(*links.network);
  }
  return all;
}

}  // namespace consist
