#include "core/connect/agreement.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "consist/error.h"
#include "core/config/option_table.h"
#include "core/cost/collective_stream.h"

namespace consist {
namespace {

using Json = nlohmann::ordered_json;

/// Streams of one kind of program, by the class of ranks that have it; classes are numbered by their first rank.
struct Classes {
  std::vector<int> of_rank;  ///< the class of each rank
  std::vector<int> first;    ///< the first rank of each class
};

Classes classes_of(const std::vector<std::string>& fingerprints) {
  Classes classes;
  std::map<std::string, int> known;
  for (std::size_t rank = 0; rank < fingerprints.size(); ++rank) {
    const auto [entry, added] = known.try_emplace(fingerprints[rank], static_cast<int>(classes.first.size()));
    if (added) classes.first.push_back(static_cast<int>(rank));
    classes.of_rank.push_back(entry->second);
  }
  return classes;
}

/// True if all ranks of a stage have the same stream: then the ranks of one pipeline stand for all others, which do the same at
/// the same time.
bool differ_by_stage_only(const Classes& classes, const Mesh& mesh, int stage_axis) {
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const int stage = stage_axis < 0 ? 0 : mesh.coordinate(rank, stage_axis);
    const int first = stage_axis < 0 ? 0 : mesh.group(0, stage_axis)[static_cast<std::size_t>(stage)];
    if (classes.of_rank[static_cast<std::size_t>(rank)] != classes.of_rank[static_cast<std::size_t>(first)]) return false;
  }
  return true;
}

/// The mesh with one rank on all axes but that of the stages.
Mesh one_pipeline(const Mesh& mesh, int stage_axis) {
  std::vector<MeshAxis> axes;
  for (int axis = 0; axis < mesh.axes(); ++axis)
    axes.push_back({mesh.axis(axis).name, axis == stage_axis ? mesh.size_of(axis) : 1});
  return Mesh(std::move(axes));
}

void verify_classes(const Program& program, const Classes& classes, const std::map<int, CollectiveStream>& streams) {
  const auto stream_of = [&](int rank) {
    return &streams.at(classes.first[static_cast<std::size_t>(classes.of_rank[static_cast<std::size_t>(rank)])]);
  };
  std::vector<int> ranks;
  const bool one = differ_by_stage_only(classes, program.mesh, program.stage_axis);
  if (one) ranks = program.stage_axis < 0 ? std::vector<int>{0} : program.mesh.group(0, program.stage_axis);
  for (int rank = 0; !one && rank < program.mesh.ranks(); ++rank) ranks.push_back(rank);
  std::vector<const CollectiveStream*> of_ranks;
  for (int rank : ranks) of_ranks.push_back(stream_of(rank));
  verify_streams(one ? one_pipeline(program.mesh, program.stage_axis) : program.mesh, of_ranks, ranks);
}

class Agreement {
 public:
  Agreement(Job& job, std::string topic) : job_(job), topic_("agree." + std::move(topic)) {}

  void check(const Program& program) {
    const CollectiveStream own = collective_stream(program);
    const std::vector<std::string> fingerprints = job_.gather(topic_ + ".fingerprints", fingerprint_of(own), job_.timeout());
    Classes classes;
    std::string asked;
    if (job_.rank() == 0) {
      classes = classes_of(fingerprints);
      for (int rank : classes.first) asked += std::to_string(rank) + " ";
    }
    std::istringstream words(job_.broadcast(topic_ + ".asked", asked, job_.timeout()));
    std::vector<int> first;  // of each class; rank 0 is among them, as the first of all
    for (int rank = 0; words >> rank;) first.push_back(rank);
    std::vector<std::string> told;
    if (std::find(first.begin(), first.end(), job_.rank()) != first.end())
      told = job_.gather(topic_ + ".streams", encode(own), job_.timeout(), first);

    std::string problem;
    if (job_.rank() == 0) {
      std::map<int, CollectiveStream> streams;
      for (std::size_t i = 0; i < first.size(); ++i) streams.emplace(first[i], i == 0 ? own : decode_stream(told[i]));
      try {
        verify_classes(program, classes, streams);
      } catch (const ProgramError& error) {
        problem = error.what();
      }
    }
    problem = job_.broadcast(topic_ + ".problem", problem, job_.timeout());
    if (!problem.empty())
      throw ProgramError("the ranks' programs (" + topic_.substr(6) + ") do not agree, so nothing was trained: " + problem);
  }

 private:
  Job& job_;
  const std::string topic_;
};

/// Returns the options that must be equal on all ranks. Paths, devices and limits may be a host's own.
Json shared_options(const RunConfig& config) {
  Json options = Json::parse(config.to_json());
  for (const char* own : {"model", "device", "machine"}) options.erase(own);
  for (const RunOption& option : run_option_table()) {
    std::string key = option.spec.name;
    std::replace(key.begin(), key.end(), '-', '_');
    if (option.scope == OptionScope::limit) options.erase(key);
    if (is_place_of_results(option)) options[key] = !text_in(config, option).empty();
  }
  Json of_plugins = Json::object();
  std::vector<std::string> owners{config.precision};
  for (const StrategyChoice& strategy : config.strategies) owners.push_back(strategy.name);
  for (const std::string& owner : owners) {
    if (const auto found = config.plugin_options.find(owner); found != config.plugin_options.end())
      of_plugins[owner] = found->second;
  }
  options["plugin_options"] = of_plugins;
  return options;
}

std::string value_text(const Json& options, const std::string& key) {
  return options.contains(key) ? options[key].dump(-1, ' ', false, Json::error_handler_t::replace) : "nothing";
}

std::string difference(const Json& first, const std::string& text, int rank) {
  const Json other = Json::parse(text, nullptr, false);
  if (!other.is_object()) return "rank " + std::to_string(rank) + " does not say with which options it was started";
  for (const Json* options : {&first, &other}) {
    for (const auto& [key, value] : options->items()) {
      const std::string here = value_text(first, key), there = value_text(other, key);
      if (here == there) continue;
      return "rank " + std::to_string(rank) + " was started with " + key + " " + there + ", rank 0 with " + here +
             "; all ranks of a job need the same options";
    }
  }
  return {};
}

}  // namespace

void agree_on_programs(Job& job, const std::string& topic, std::span<const Program* const> programs) {
  if (job.size() == 1) return;
  for (std::size_t i = 0; i < programs.size(); ++i)
    Agreement(job, topic + (i == 0 ? " of the step" : " of the evaluation")).check(*programs[i]);
}

void agree_on_options(Job& job, const RunConfig& config) {
  if (job.size() == 1) return;
  const Json own = shared_options(config);
  const std::string text = own.dump(-1, ' ', false, Json::error_handler_t::replace);
  const std::vector<std::string> texts = job.gather("agree.options", text, job.timeout());
  std::string problem;
  for (std::size_t rank = 1; job.rank() == 0 && rank < texts.size() && problem.empty(); ++rank) {
    if (texts[rank] != texts[0]) problem = difference(own, texts[rank], static_cast<int>(rank));
  }
  problem = job.broadcast("agree.options.problem", problem, job.timeout());
  if (!problem.empty()) throw UsageError(problem);
}

}  // namespace consist
