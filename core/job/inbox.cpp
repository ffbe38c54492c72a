#include "core/job/inbox.h"

#include <utility>

namespace consist {

void Inbox::add(std::string_view name, int from, std::string_view bytes, bool last) {
  auto found = texts_.find(name);
  if (found == texts_.end()) found = texts_.try_emplace(std::string(name)).first;
  Texts& texts = found->second[from];
  texts.begun.append(bytes);
  if (last) texts.whole.push_back(std::exchange(texts.begun, {}));
}

bool Inbox::has(std::string_view name, int from) const {
  const auto found = texts_.find(name);
  if (found == texts_.end()) return false;
  const auto given = found->second.find(from);
  return given != found->second.end() && !given->second.whole.empty();
}

std::string Inbox::take(std::string_view name, int from) {
  const auto found = texts_.find(name);
  const auto given = found->second.find(from);
  Texts& texts = given->second;
  std::string text = std::move(texts.whole.front());
  texts.whole.pop_front();
  if (texts.whole.empty() && texts.begun.empty()) found->second.erase(given);
  if (found->second.empty()) texts_.erase(found);
  return text;
}

}  // namespace consist
