#include "launch/predict/remedies.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "consist/host.h"
#include "consist/text.h"

namespace consist::launch {

std::vector<Remedy> remedies_for(const Plan& plan, PluginHost& host, const Room& room, const TrialLimits& limits) {
  std::vector<Alternative> alternatives = alternatives_of(plan, host);
  std::erase_if(alternatives, [](const Alternative& a) { return a.aim == Aim::speed; });
  std::vector<Remedy> found;
  for (Trial& trial : try_alternatives(plan, host, std::move(alternatives), limits)) {
    if (!room.fits(trial.prediction)) continue;
    const Alternative& a = trial.alternative;
    found.push_back({text_of(a.choices, plan.config(), host), std::move(trial.prediction), a.caution});
  }
  std::stable_sort(found.begin(), found.end(), [](const Remedy& a, const Remedy& b) {
    return a.prediction.tokens_per_second > b.prediction.tokens_per_second;
  });
  std::vector<Remedy> best;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (Remedy& remedy : found) {
    const std::int64_t bytes = remedy.prediction.most_bytes();
    if (bytes >= least) continue;
    if (remedy.caution.empty()) least = bytes;
    best.push_back(std::move(remedy));
  }
  return best;
}

std::vector<Remedy> remedies_for(const Plan& plan, PluginHost& host) {
  return remedies_for(plan, host, room_of(*plan.target().machine), {.threads = usable_cores()});
}

std::string text_of(const std::vector<Remedy>& remedies, const Prediction& asked) {
  std::string text;
  for (const Remedy& remedy : remedies) {
    const double slower = remedy.prediction.time.seconds / asked.time.seconds - 1;
    text += "'" + remedy.options + "' fits: " + bytes_text(remedy.prediction.most_bytes()) + ", a step ";
    const std::string percent = fixed_text(100 * std::abs(slower), 0);
    text += percent == "0" ? "as fast" : percent + "% " + (slower < 0 ? "faster" : "slower");
    std::int64_t host_bytes = 0;
    for (const RankMemory& memory : remedy.prediction.memory) host_bytes = std::max(host_bytes, memory.host_bytes);
    if (host_bytes > 0) text += ", " + bytes_text(host_bytes) + " of a rank on the host";
    if (!remedy.caution.empty()) text += "; " + remedy.caution;
    text += "\n";
  }
  return text;
}

std::string refusal_of(const Plan& plan, PluginHost& host, const Prediction& asked) {
  const std::string remedies = text_of(remedies_for(plan, host), asked);
  return "DOES NOT FIT: a rank needs " + bytes_text(asked.most_bytes()) + ", " + plan.target().machine->name + " has " +
         bytes_text(asked.capacity) + ".\n" +
         (remedies.empty() ? "No change that was tried makes it fit: more ranks would.\n" : remedies);
}

}  // namespace consist::launch
