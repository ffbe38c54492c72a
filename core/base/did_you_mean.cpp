#include "core/base/did_you_mean.h"

#include <algorithm>
#include <limits>

#include "core/base/lower.h"

namespace consist {
namespace {

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b` (optimal string alignment).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), previous(b.size() + 1), current(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) current[j] = std::min(current[j], before[j - 2] + 1);
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

std::string initials(std::string_view name) {
  std::string result;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (i == 0 || name[i - 1] == '-' || name[i - 1] == '_' || name[i - 1] == '.') result += name[i];
  }
  return result;
}

bool mentions(const std::string& summary, const std::string& word) {
  const auto letter = [&](std::size_t at) {
    return at < summary.size() && std::isalnum(static_cast<unsigned char>(summary[at]));
  };
  for (std::size_t at = summary.find(word); at != std::string::npos; at = summary.find(word, at + 1)) {
    if ((at == 0 || !letter(at - 1)) && !letter(at + word.size())) return true;
  }
  return false;
}

std::string question(const std::vector<std::string>& names) {
  constexpr std::size_t most = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i) text += (i == 0 ? "'" : " or '") + names[i] + "'";
  return text.empty() ? "" : " Did you mean " + text + "?";
}

}  // namespace

std::string did_you_mean(std::string_view given, const std::vector<KnownName>& known) {
  constexpr std::size_t longest = 64;  // nobody misspells more by accident
  const std::string word = lower(given);
  if (word.size() < 2 || word.size() > longest) return "";
  std::vector<std::string> begun, misspelt, abbreviated, mentioned;
  std::size_t best = std::numeric_limits<std::size_t>::max();
  for (const KnownName& candidate : known) {
    const std::string name = lower(candidate.name);
    if (name.starts_with(word)) begun.push_back(candidate.name);
    if (const std::size_t d = distance(word, name); d <= std::max<std::size_t>(1, word.size() / 3) && d <= best) {
      if (d < best) misspelt.clear();
      best = d;
      misspelt.push_back(candidate.name);
    }
    if (name.size() > word.size() && initials(name) == word) abbreviated.push_back(candidate.name);
    if (mentions(lower(candidate.summary), word)) mentioned.push_back(candidate.name);
  }
  for (const auto& names : {begun, misspelt, abbreviated, mentioned}) {
    if (!names.empty()) return question(names);
  }
  return "";
}

}  // namespace consist
