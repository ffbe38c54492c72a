#include "launch/doctor/examination.h"

#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "consist/error.h"
#include "launch/cluster/cluster_table.h"
#include "launch/cluster/followed_process.h"
#include "launch/cluster/jobs.h"
#include "launch/start/noted_signals.h"

namespace consist::doctor {

void ExaminationLines::take_output(const std::string& line) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return;  // plugins may print, too
  if (const auto hosts = json.find(hosts_event); hosts != json.end()) {
    for (const nlohmann::json& host : *hosts) said_.hosts.push_back(host_from(host));
  }
  if (const auto figures = json.find(figures_event); figures != json.end()) said_.figures = launch::short_figures_from(*figures);
}

void ExaminationLines::take_error(const std::string& line) {
  if (line.find("error: ") != std::string::npos || last_error_.empty()) last_error_ = line;
}

Examination ExaminationLines::ended(int status) && {
  if (status == 0) return std::move(said_);
  const std::size_t error = last_error_.find("error: ");
  said_.problem = last_error_.empty() ? "the ranks that measure ended with status " + std::to_string(status) + " and said nothing"
                                      : last_error_.substr(error == std::string::npos ? 0 : error + 7);
  return std::move(said_);
}

Examination examine_here(const std::vector<std::string>& words, std::chrono::seconds longest) {
  std::vector<std::string> all{launch::own_executable(), "examine"};
  all.insert(all.end(), words.begin(), words.end());
  ExaminationLines lines;
  launch::FollowedProcess process(
      std::move(all), [&](const std::string& line) { lines.take_output(line); },
      [&](const std::string& line) { lines.take_error(line); });
  const launch::NotedSignals& signals = launch::note_signals();
  const auto end = std::chrono::steady_clock::now() + longest;
  while (process.look()) {
    if (signals.wishes > 0) return {{}, std::nullopt, "measuring was ended by " + launch::signal_text(signals.number)};
    if (std::chrono::steady_clock::now() > end)
      return {{}, std::nullopt, "measuring has not ended within " + std::to_string(longest.count()) + " s"};
    std::this_thread::sleep_for(launch::pause_between_looks / 4);
  }
  return std::move(lines).ended(*process.status());
}

}  // namespace consist::doctor
