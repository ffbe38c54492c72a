// Suggests the name that was probably meant by one that does not exist.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"

namespace consist {

/// A name that exists, and a line about it in which another system's word for it may occur ("like FSDP").
struct KnownName {
  std::string name;
  std::string summary = {};
};

/// " Did you mean 'a' or 'b'?" (with the space) for the names that `word` begins, that it misspells by about a letter in three,
/// whose initials it is ("lr": learning-rate), or whose summary mentions it; empty if there is none. The first kind that matches
/// answers. Options are given without their dashes.
CONSIST_API std::string did_you_mean(std::string_view word, const std::vector<KnownName>& known);

}  // namespace consist
