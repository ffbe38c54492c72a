// Short measurements of a job's devices and links, for `consist doctor`: half a minute, where `consist calibrate` takes two.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "consist/cost.h"
#include "core/config/run_config.h"
#include "core/job/job.h"
#include "core/plugin/host.h"
#include "launch/measure/host_link.h"

namespace consist::launch {

/// The device of one rank, in the steps of short_step().
struct RankFigures {
  int rank = 0;
  int node = 0;                     ///< a number of its host, 0, 1, ... in the order of ranks
  std::string host;                 ///< its name
  double products = 0, memory = 0;  ///< FLOP/s of kernels that compute; bytes/s of those that only read and write
  /// Time of these kernels over that by the base machine.
  double products_time = 1, memory_time = 1;
  double seconds = 0;  ///< of all of them
  double clock = 0;    ///< Hz at the end of a step; 0: the device does not tell
};

/// Messages each way at once between two ranks of a node, or of two nodes while their other ranks send, too.
struct LinkFigure {
  int one = 0, other = 0;  ///< ranks, the lower one first
  bool across = false;     ///< between nodes
  double rate = 0;         ///< bytes/s each way, the slower of what both ranks saw
};

struct ShortFigures {
  std::string device;  ///< the name of rank 0's
  std::string step;    ///< for people: the step that was measured
  std::vector<RankFigures> ranks;
  std::vector<LinkFigure> links;  ///< ascending
  /// Within nodes ([0]) and between them ([1]); empty where there are none.
  std::array<std::string, 2> transports, paths;
  bool has_host = false;      ///< copies between host and device were measured
  Machine base;               ///< with which they are compared: --machine, else that of the device
  bool is_comparable = true;  ///< false: the base is not of this device
  Machine measured;           ///< the base with the figures that were measured
};

/// Collective over the job: measures its devices and links. --machine names the base. All is known on rank 0 alone. Throws what
/// the parts throw, and SystemError if a message arrives wrong.
ShortFigures measure_shortly(const RunConfig& config, PluginHost& host, JoinedJob& job);

/// A machine whose kernels that compute take `products` times as long, and the others `memory` times.
Machine with_times(Machine machine, double products, double memory);

/// Ranks and links, of one rank or of all, without the machines; add_parts() reads it back and throws nlohmann::json::exception.
nlohmann::ordered_json json_of_parts(const std::vector<RankFigures>& ranks, const std::vector<LinkFigure>& links);
void add_parts(const nlohmann::json& json, std::vector<RankFigures>& ranks, std::vector<LinkFigure>& links);

nlohmann::ordered_json json_of(const ShortFigures& figures);
/// Reads what json_of() makes. Throws DataError.
ShortFigures short_figures_from(const nlohmann::json& json);

}  // namespace consist::launch
