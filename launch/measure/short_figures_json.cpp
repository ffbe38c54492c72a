#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "core/cost/machine_file.h"
#include "launch/measure/short_figures.h"

namespace consist::launch {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const RankFigures& rank) {
  return {{"rank", rank.rank},
          {"node", rank.node},
          {"host", rank.host},
          {"product_flops_per_second", rank.products},
          {"memory_bytes_per_second", rank.memory},
          {"product_time_ratio", rank.products_time},
          {"memory_time_ratio", rank.memory_time},
          {"kernel_seconds", rank.seconds},
          {"clock_hz", rank.clock > 0 ? Json(rank.clock) : Json()}};
}

RankFigures rank_from(const nlohmann::json& json) {
  return {.rank = json.at("rank").get<int>(),
          .node = json.at("node").get<int>(),
          .host = json.at("host").get<std::string>(),
          .products = json.at("product_flops_per_second").get<double>(),
          .memory = json.at("memory_bytes_per_second").get<double>(),
          .products_time = json.at("product_time_ratio").get<double>(),
          .memory_time = json.at("memory_time_ratio").get<double>(),
          .seconds = json.at("kernel_seconds").get<double>(),
          .clock = json.at("clock_hz").is_null() ? 0 : json.at("clock_hz").get<double>()};
}

Json in_order(const std::array<std::string, 2>& texts) {
  return Json::array({texts[0], texts[1]});
}

}  // namespace

Json json_of_parts(const std::vector<RankFigures>& ranks, const std::vector<LinkFigure>& links) {
  Json json{{"ranks", Json::array()}, {"links", Json::array()}};
  for (const RankFigures& rank : ranks) json["ranks"].push_back(json_of(rank));
  for (const LinkFigure& link : links)
    json["links"].push_back(
        {{"ranks", Json::array({link.one, link.other})}, {"across_nodes", link.across}, {"bytes_per_second", link.rate}});
  return json;
}

void add_parts(const nlohmann::json& json, std::vector<RankFigures>& ranks, std::vector<LinkFigure>& links) {
  for (const nlohmann::json& rank : json.at("ranks")) ranks.push_back(rank_from(rank));
  for (const nlohmann::json& link : json.at("links"))
    links.push_back({link.at("ranks").at(0).get<int>(), link.at("ranks").at(1).get<int>(), link.at("across_nodes").get<bool>(),
                     link.at("bytes_per_second").get<double>()});
}

Json json_of(const ShortFigures& figures) {
  Json json = json_of_parts(figures.ranks, figures.links);
  json["device"] = figures.device;
  json["step"] = figures.step;
  json["transports"] = in_order(figures.transports);
  json["paths"] = in_order(figures.paths);
  json["host_copies"] = figures.has_host;
  json["comparable"] = figures.is_comparable;
  json["base"] = Json::parse(to_json(figures.base));
  json["measured"] = Json::parse(to_json(figures.measured));
  return json;
}

ShortFigures short_figures_from(const nlohmann::json& json) try {
  ShortFigures figures{.device = json.at("device").get<std::string>(),
                       .step = json.at("step").get<std::string>(),
                       .ranks = {},
                       .links = {},
                       .transports = {json.at("transports").at(0), json.at("transports").at(1)},
                       .paths = {json.at("paths").at(0), json.at("paths").at(1)},
                       .has_host = json.at("host_copies").get<bool>(),
                       .base = machine_from_json(json.at("base").dump(), "the machine"),
                       .is_comparable = json.at("comparable").get<bool>(),
                       .measured = machine_from_json(json.at("measured").dump(), "the measured machine")};
  add_parts(json, figures.ranks, figures.links);
  return figures;
} catch (const nlohmann::json::exception& error) {
  throw DataError(std::string("figures of a measurement: ") + error.what());
}

}  // namespace consist::launch
