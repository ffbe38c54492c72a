#include "core/plugin/header_marks.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "consist/error.h"

namespace consist {
namespace {

constexpr std::size_t hash_digits = 64;

bool is_header_name(std::string_view name) {
  return name.size() > 2 && name.size() <= 64 && name.ends_with(".h") &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || c == '-'; });
}

bool is_hash(std::string_view hash) {
  return hash.size() == hash_digits && std::all_of(hash.begin(), hash.end(), [](unsigned char c) { return std::isxdigit(c); });
}

/// Marks of texts that end in `end` each; false if one is no mark.
bool read_marks(std::string_view texts, char end, std::set<HeaderMark>& marks) {
  while (!texts.empty()) {
    const std::string_view text = texts.substr(0, texts.find(end));
    texts.remove_prefix(std::min(text.size() + 1, texts.size()));
    if (text.empty()) continue;  // a linker may fill up between objects
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string_view name = text.substr(0, space), hash = text.substr(std::min(space + 1, text.size()));
    if (!is_header_name(name) || !is_hash(hash)) return false;
    marks.insert({std::string(name), std::string(hash)});
  }
  return true;
}

/// Those of this build.
const std::set<HeaderMark>& own_marks() {
  static const std::set<HeaderMark> all = [] {
    std::set<HeaderMark> marks;
    for (const HeaderText& list : header_texts()) {
      if (!read_marks(list.text, '\n', marks)) throw ProgramError("the list of this build's headers is damaged; build it again");
    }
    return marks;
  }();
  return all;
}

}  // namespace

std::vector<HeaderMark> parse_header_marks(std::string_view section, const std::string& file) {
  std::set<HeaderMark> marks;
  if (!read_marks(section, '\0', marks))
    throw DataError(file +
                    ": its section .consist_headers holds something else than names of headers with their hashes; rebuild the "
                    "plugin against this version of Consist");
  return {marks.begin(), marks.end()};
}

std::vector<std::string> changed_headers(const std::vector<HeaderMark>& marks) {
  std::vector<std::string> names;
  for (const HeaderMark& mark : marks) {
    if (!own_marks().contains(mark) && (names.empty() || names.back() != mark.name)) names.push_back(mark.name);
  }
  return names;
}

std::string few_of(const std::vector<std::string>& names) {
  constexpr std::size_t most = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > most ? text + " and " + std::to_string(names.size() - most) + " more" : text;
}

}  // namespace consist
