// A new part from a template: its names, and its files' texts.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "launch/templates/part_template.h"

namespace consist::launch {

/// Throws UsageError unless the name is words of small letters and digits, joined by '-', short enough for a record.
void check_part_name(std::string_view name);

/// The files of a part of that name by their names, README.md included. `examples` is the installed folder of tests/external.
/// Throws SystemError for a file that is not there, ProgramError if the template does not fit it.
std::map<std::string, std::string> files_of_part(const PartTemplate& part, std::string_view name,
                                                 const std::filesystem::path& examples);

/// Text with {name}, {snake} and {Class} filled in.
std::string with_name(std::string_view text, std::string_view name);

}  // namespace consist::launch
