// Figures of a made-up cluster that is well: as many hosts of eight H100 as a test wants, measured as the machine's file has it.
#pragma once

#include <string>

#include "launch/measure/links.h"
#include "launch/measure/short_figures.h"

namespace consist::doctor {

inline constexpr int ranks_of_a_host = 8;
inline constexpr double usual_link = 300e9, usual_network = 40e9;

inline launch::ShortFigures figures_of(int hosts) {
  launch::ShortFigures figures{.device = "NVIDIA H100 80GB HBM3",
                               .step = "llama-3.1-8b, 4 layers",
                               .transports = {"nvlink", hosts > 1 ? "efa" : ""},
                               .paths = {"P2P/CUMEM", hosts > 1 ? "NET/AWS Libfabric" : ""},
                               .has_host = true,
                               .base = *find_machine("h100")};
  figures.base.ranks_per_node = ranks_of_a_host;
  const int ranks = hosts * ranks_of_a_host;
  for (int rank = 0; rank < ranks; ++rank) {
    const int node = rank / ranks_of_a_host;
    // Devices differ a little, as they do.
    const double times = 1 + 0.001 * (rank % 5);
    figures.ranks.push_back({.rank = rank,
                             .node = node,
                             .host = "node0" + std::to_string(node + 1),
                             .products = 6e14 / times,
                             .memory = 2.8e12 / times,
                             .products_time = times,
                             .memory_time = times,
                             .seconds = 0.1 * times,
                             .clock = 1.755e9});
    for (int other = rank + 1; other < ranks; ++other) {
      const bool across = other / ranks_of_a_host != node;
      if (!across || (other - rank) % ranks_of_a_host == 0)
        figures.links.push_back({rank, other, across, across ? usual_network : usual_link});
    }
  }
  figures.measured = figures.base;
  figures.measured.rank_skew = {0.002, FigureSource::measured_here};
  figures.measured.host_shared.source = FigureSource::measured_here;
  const auto links_of = [&](const char* transport, bool across) {
    const TransportLinks& known = *figures.base.find_transport(transport);
    return across ? *known.network : *known.node;
  };
  figures.measured.node = links_of("nvlink", false);
  if (hosts > 1) figures.measured.network = links_of("efa", true);
  return figures;
}

/// Makes a device compute more slowly.
inline void slow_down(launch::ShortFigures& figures, int rank, double times) {
  launch::RankFigures& slow = figures.ranks.at(static_cast<std::size_t>(rank));
  slow.products /= times;
  slow.products_time *= times;
  slow.seconds *= times;
  slow.clock /= times;
  figures.measured.rank_skew.value = slow.seconds / 0.1 - 1;
}

/// Makes collectives over links within hosts, or between them, slower.
inline void slow_links(launch::ShortFigures& figures, bool across, double times) {
  LinkRates& links = across ? figures.measured.network : figures.measured.node;
  for (LinkRates::Curve& curve : links.curves) {
    curve.latency *= times;
    for (LinkRates::Point& point : curve.rates) point.rate /= times;
  }
  for (TransportLinks& of : figures.measured.transports) {
    if (of.transport == figures.transports[across]) (across ? of.network : of.node) = links;
  }
}

}  // namespace consist::doctor
