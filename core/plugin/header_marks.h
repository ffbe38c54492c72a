// The public headers that a plugin was built with. Each header of an installed Consist ends in a mark, which puts its name and
// hash into the section ".consist_headers" of what includes it (core/cmake/MakeFingerprint.cmake). Classes, inline functions and
// virtual interfaces reach a plugin through headers that it includes and by no other way; so a plugin may be loaded if those are
// this build's, whatever became of the others.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"

namespace consist {

/// A header and the hash over what it declares.
struct HeaderMark {
  std::string name, hash;
  auto operator<=>(const HeaderMark&) const = default;
};

/// The headers in the bytes of a section ".consist_headers", by name, each once. Throws DataError if they are no such marks.
std::vector<HeaderMark> parse_header_marks(std::string_view section, const std::string& file);

/// Names of those that this build has not, or has with other declarations.
CONSIST_API std::vector<std::string> changed_headers(const std::vector<HeaderMark>& marks);

/// Names in a sentence: the first few, and how many more there are.
std::string few_of(const std::vector<std::string>& names);

/// The list of this build's headers, made while it is built: a line "name hash" for each.
struct HeaderText {
  const char *name, *text;
};
const std::vector<HeaderText>& header_texts();

}  // namespace consist
